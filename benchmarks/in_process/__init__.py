"""Benchmarks without a process of their own: searches and questions on an index, traces."""
