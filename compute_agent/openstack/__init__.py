"""Clients of other services of the cloud, over HTTP."""
