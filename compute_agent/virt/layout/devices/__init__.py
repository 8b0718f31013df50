"""Devices as providers: cards, their ports and functions, and the providers they are under."""
