"""Benchmark of the rates of claims in placement."""
