"""Benchmark of one agent."""
