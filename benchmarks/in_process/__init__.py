"""Benchmarks without a process of their own: searches and counts on an index."""
