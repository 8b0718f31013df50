"""Closest relaxations of a query without candidates, and the providers that are short of room."""
