"""WSGI middleware around the API."""
