"""The scheduler as a program that runs: its life, work in progress, metrics and workers."""
