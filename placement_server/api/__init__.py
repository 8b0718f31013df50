"""Resources of the HTTP API, one module each."""
