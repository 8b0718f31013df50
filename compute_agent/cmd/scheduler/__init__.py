"""The program ``compute-scheduler``."""
