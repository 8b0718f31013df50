"""Benchmarks of the agent: one at a time, a day of one, a thousand beside each other."""
