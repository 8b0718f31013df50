"""The HTTP server of ``placement-server serve``: gunicorn, with protection from bad clients."""
