"""Benchmarks of schedulers that run, and a simulated day of one."""
