"""A year of a fleet in small, as a test."""
