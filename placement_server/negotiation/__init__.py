"""Versions of OpenStack's API and of its extensions here, and their negotiation with a client."""
