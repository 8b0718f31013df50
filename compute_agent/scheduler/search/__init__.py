"""Queries to placement for a request, and the hosts that its answers describe."""
