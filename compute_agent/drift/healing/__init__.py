"""Allocations written for instances that lack them, one consumer at a time."""
