"""The database: its tables, and all transactions on them."""
