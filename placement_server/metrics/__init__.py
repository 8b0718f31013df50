"""Metrics for Prometheus: of requests and searches, of what the fleet has, of connections."""
