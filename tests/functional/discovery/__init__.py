"""Discovery by programs of the operating system, which tests replace with stand-ins."""
