"""Counts of further claims of one shape, and of what is free but of no use. Pure."""
