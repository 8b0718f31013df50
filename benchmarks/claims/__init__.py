"""Benchmarks of claims in placement: rates, and whether each one is exact."""
