"""Benchmark of schedulers that run."""
