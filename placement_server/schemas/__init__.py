"""JSON schemas of request bodies and query strings, per microversion."""
