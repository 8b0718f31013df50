"""The program ``compute-agent``."""
