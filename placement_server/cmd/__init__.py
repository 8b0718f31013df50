"""Commands: placement-server, placement-manage and placement-status."""
