"""Histories of what clients did at the same time, checked against a model.

By hand: `HISTORY="seconds=300 kill=1" python -m pytest -s tests/integration/history`.
"""
