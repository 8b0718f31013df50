"""Outcomes: causes where there is no host, and the observer of calls, claims and moves."""
