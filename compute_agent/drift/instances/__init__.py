"""Sources of instances: agents on the bus, Nova, or a file."""
