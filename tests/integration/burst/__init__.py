"""Bursts of claims until a fleet is full, while its parts are killed.

By hand: `python -m tests.integration.burst --hosts 50 --claims 2000`.
"""
