"""The compute-node agent and the claiming scheduler."""

from importlib import metadata

__version__ = metadata.version("compute-agent")
