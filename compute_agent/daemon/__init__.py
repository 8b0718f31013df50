"""Parts of every long-running program: signals, message bus, service manager, metrics, dumps."""
