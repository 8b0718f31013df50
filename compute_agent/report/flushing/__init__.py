"""Flushing: a plan is carried out, provider by provider or as one tree."""
