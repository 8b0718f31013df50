"""The columnar copy of the store that searches read, and the follower that keeps it equal."""
