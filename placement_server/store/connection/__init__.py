"""The connection to the database: its URL, how it is awaited, and which failures of it last."""
