"""JSON schemas of request bodies and query strings, by microversion."""
