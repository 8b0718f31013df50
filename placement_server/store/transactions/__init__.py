"""Transactions: the engine, retries, and the outcome of interrupted commits."""
