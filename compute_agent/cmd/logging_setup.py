"""Logging of commands, and of the daemon `compute-agent`."""

from __future__ import annotations

import argparse
import logging
from typing import TYPE_CHECKING

from compute_agent import __version__
from compute_agent.cmd import program
from compute_agent.daemon import message_bus

if TYPE_CHECKING:
    from oslo_config import cfg

LOG = logging.getLogger("compute_agent")

LIBRARIES = (
    *("keystoneauth", "urllib3", "requests", "stevedore", "amqp", "kombu"),
    *("oslo_service", "oslo_messaging", "oslo_config"),
)


def set_up_daemon(conf: cfg.ConfigOpts) -> None:
    """Log as configured."""
    from compute_agent.daemon import logs

    logs.set_up(conf, "compute-agent")
    for library in LIBRARIES:
        # their lines about every request would hide the agent's own
        logging.getLogger(library).setLevel(logging.WARNING)


def log_start(conf: cfg.ConfigOpts) -> None:
    """Log what starts: the first thing that is asked for when something is wrong."""
    LOG.info(
        "compute-agent %s starts: host %s, driver %s, placement %s, message bus %s",
        __version__,
        conf.DEFAULT.host,
        conf.compute_driver,
        conf.placement.endpoint_override or "by the catalogue of keystone",
        message_bus.shown_address(conf),
    )


def set_up_command(conf: cfg.ConfigOpts, *, verbose: bool) -> None:
    """Log for a command whose output is read by people or programs: to stderr, errors only.

    :param verbose: everything, not only errors.
    """
    # oslo.log's own default is stdout, which belongs to the result; the file is the daemon's, and
    # who runs a command may not be allowed to write to it
    conf.set_override("use_stderr", True)
    for option in ("log_file", "log_dir"):
        conf.set_override(option, None)
    set_up_daemon(conf)
    if not verbose:
        for name in (None, *LIBRARIES):
            logging.getLogger(name).setLevel(logging.ERROR)
        message_bus.keep_quiet()


def quiet_configuration(namespace: argparse.Namespace) -> cfg.ConfigOpts:
    """Return the configuration of such a command, and log for it.

    :raises InvalidConfiguration: it cannot be used.
    """
    conf = program.configuration(namespace)
    set_up_command(conf, verbose=namespace.debug)
    return conf


def log_fatal(error: Exception) -> None:
    """Log why the agent ends, unless the log is stderr, where it is printed anyway."""
    for handler in logging.getLogger().handlers:
        # a file is a stream, too
        if isinstance(handler, logging.FileHandler) or not isinstance(
            handler, logging.StreamHandler
        ):
            LOG.critical("The agent ends: %s", error)
            return
