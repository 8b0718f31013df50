"""The program `compute-scheduler`."""
