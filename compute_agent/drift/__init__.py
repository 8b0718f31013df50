"""Differences between the guests of a host and their allocations, and their repair."""
