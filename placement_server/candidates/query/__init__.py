"""What a search asks: parameters, filters, and their compiled form."""
