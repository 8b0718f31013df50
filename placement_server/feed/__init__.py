"""The feed of changes for clients: what of it is final, and requests that wait for more."""
