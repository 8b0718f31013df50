"""Drivers: what a node has, laid out as resource providers."""
