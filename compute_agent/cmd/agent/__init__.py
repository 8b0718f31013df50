"""The program `compute-agent`."""
