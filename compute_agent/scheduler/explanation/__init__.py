"""Explanations of requests that fit nowhere: constraints, closest hosts, smallest changes."""
