"""The Placement HTTP API, wire compatible with OpenStack Placement 1.0 to 1.39."""

from importlib import metadata

__version__ = metadata.version("compute-agent")
