"""State that survives a restart: the identity of the node, the ledger, and their files."""
