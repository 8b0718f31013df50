"""Reload of the options of a program that runs, and how a status shows one that failed."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from compute_agent import conf as agent_conf
from compute_agent.daemon.trouble import Trouble
from compute_agent.errors import ComputeAgentError

if TYPE_CHECKING:
    from oslo_config import cfg

LOG = logging.getLogger(__name__)


def reload(conf: cfg.ConfigOpts, read_the_rest: Callable[[], None]) -> Trouble | None:
    """Read the configuration files again, then what else is read at a reload.

    :returns: why that failed, so that values read before stay in force; None: it did not.
    """
    try:
        for line in agent_conf.reload(conf):
            LOG.info("Option changed: %s", line)
        read_the_rest()
    except Exception as error:
        # a defect too: the service manager waits for the end of the reload
        is_foreseen = isinstance(error, ComputeAgentError)
        text = str(error) if is_foreseen else repr(error)
        LOG.error("The reload failed: %s", text, exc_info=not is_foreseen)
        return Trouble("not reloaded", text, time.time(), 1)
    return None


def shown_failure(document: Mapping[str, Any]) -> str:
    """Return the text about a reload that failed, by its part of a status document."""
    return f"not reloaded at {document['since']}: {document['message']}"
