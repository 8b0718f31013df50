"""Handlers of the resources of the Placement API, one module each."""
