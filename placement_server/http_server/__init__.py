"""The HTTP server of `placement-server serve`: granian, and turns at the application."""
