"""Allocations and their consumers, and the reshape that moves them with inventory."""
