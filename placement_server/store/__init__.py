"""The database: its tables, and every transaction that changes them."""
