"""Logging of the command `compute-agent`."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oslo_config import cfg

LOG = logging.getLogger("compute_agent")

LIBRARIES = (
    *("keystoneauth", "urllib3", "requests", "stevedore", "amqp", "kombu"),
    *("oslo_service", "oslo_messaging", "oslo_config"),
)


def set_up(conf: cfg.ConfigOpts, *, quiet: bool = False) -> None:
    """Log as configured.

    :param quiet: for a command whose output is read by people: errors only.
    """
    from oslo_log import log

    log.setup(conf, "compute-agent")
    if quiet:
        logging.getLogger().setLevel(logging.ERROR)
    for library in LIBRARIES:
        # their lines about every request would drown the agent's own
        logging.getLogger(library).setLevel(logging.WARNING)


def log_fatal(error: Exception) -> None:
    """Log why the agent ends, where its log goes; stderr is told besides."""
    handlers = logging.getLogger().handlers
    if all(isinstance(h, logging.StreamHandler) and not _is_file(h) for h in handlers):
        return
    LOG.critical("The agent ends: %s", error)


def _is_file(handler: logging.Handler) -> bool:
    return isinstance(handler, logging.FileHandler)
