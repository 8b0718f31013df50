"""A year in small: does anything grow that should not? See `__main__`."""
