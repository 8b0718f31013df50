"""Supposed changes of the fleet, made on a copy of the index."""
