"""Flushing: a plan is carried out, provider by provider."""
