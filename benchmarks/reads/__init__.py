"""Benchmarks of searches and reads over HTTP, beside the published package and a floor."""
