"""Plans of a few moves after which a request fits, trees are empty, or both."""
