"""Query of a search: its parameters, its filters, and its compiled form."""
