"""Placement as the scheduler asks and writes it: its client, candidates and holdings."""
