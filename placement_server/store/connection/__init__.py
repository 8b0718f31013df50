"""The connection to the database: its URL and options, the wait for it, and its failures."""
