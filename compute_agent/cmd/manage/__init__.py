"""The program `compute-manage`."""
