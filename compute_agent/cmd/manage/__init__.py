"""The program ``compute-manage``."""
