"""Enumeration of candidates on the index. Pure: no input, no output."""
