"""The columnar copy of the store that searches read, and the feed that keeps it equal."""
