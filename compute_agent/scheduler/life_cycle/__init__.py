"""The life cycle of an instance, from claim to delete, in steps that may all be repeated."""
