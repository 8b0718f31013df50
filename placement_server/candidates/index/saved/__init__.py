"""The copy of the index in a file, for workers that start."""
