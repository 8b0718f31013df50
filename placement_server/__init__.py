"""The Placement HTTP API, wire compatible with OpenStack Placement 1.0 to 1.39."""

from compute_agent import __version__ as __version__
