"""Needs of an instance: flavor, image, ports and server group, up to the groups of a query."""
