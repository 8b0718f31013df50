"""Benchmarks of the server: its start, its workers, its pages, whole trees."""
