"""What survives a restart: the identity of the node, the ledger, and how files are kept."""
