"""Rows beside their floors: what the same costs when nothing but the unavoidable is done."""
