"""Command lines: placement-server, placement-manage and placement-status."""
