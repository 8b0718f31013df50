"""Limits of what the searches of one worker process may take: memory, and processor time."""
