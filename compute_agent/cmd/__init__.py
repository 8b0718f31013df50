"""Command lines: one folder per program."""
