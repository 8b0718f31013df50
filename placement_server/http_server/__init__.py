"""The HTTP server of ``placement-server serve``: gunicorn, and what bad clients make necessary."""
