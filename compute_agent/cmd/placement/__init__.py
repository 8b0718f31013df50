"""The command placement: all that the Placement API and its extensions can do, by hand."""
