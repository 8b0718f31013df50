"""Bursts of claims until a fleet is full, while its parts are killed.

By hand: `python -m tests.integration.nemesis.fleet --kills --hosts 50 --claims 2000`.
"""
