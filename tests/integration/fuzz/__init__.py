"""Requests that are wrong in many ways, from a seed, at a real server: see `__main__`."""
