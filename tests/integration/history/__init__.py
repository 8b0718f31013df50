"""Histories of what clients did at the same time, checked against a model.

By hand: `python -m tests.integration.history --seconds 300 --kill`.
"""
