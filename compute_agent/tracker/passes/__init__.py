"""One pass over one node, from what the driver sees to what placement holds."""
