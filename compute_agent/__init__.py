"""The compute-node agent and the claiming scheduler."""

__version__ = "0.1.0"
