"""Parts of every long-running program: signals and the message bus."""
