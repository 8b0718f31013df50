"""Moves of instances between hosts, and devices attached to running instances."""
