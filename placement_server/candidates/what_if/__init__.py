"""Suppositions about the fleet, made true on a copy of the index."""
