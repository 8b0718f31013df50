"""Synchronisation of trees: what placement has, what it should have, and the way there."""
