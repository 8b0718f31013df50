"""The settings of the store, from the options of group `placement_database`."""

from __future__ import annotations

import logging
from dataclasses import fields
from typing import Any, Final

from oslo_config import cfg

from placement_server.store.connection.options import StoreOptions
from placement_server.store.errors import StoreUnavailable

LOG = logging.getLogger(__name__)

GROUP: Final = "placement_database"


def connection(conf: cfg.ConfigOpts) -> str:
    """Return the URL of the database.

    :raises StoreUnavailable: none is configured.
    """
    url = conf[GROUP].connection
    if not url:
        raise StoreUnavailable(
            "No database is configured: set [placement_database]connection, for example to "
            "sqlite:////var/lib/placement/placement.db."
        )
    if conf[GROUP].slave_connection:
        LOG.warning(
            "[placement_database]slave_connection is ignored: all reads use [placement_database]"
            "connection, so that clients see what they wrote. Remove the option."
        )
    return str(url)


def store_options(conf: cfg.ConfigOpts) -> StoreOptions:
    """Return the settings of the store as configured."""
    group: Any = conf[GROUP]
    names = {field.name for field in fields(StoreOptions)}
    return StoreOptions(
        **{name: group[name] for name in names.intersection(group)},
        connect_tries=group.max_retries if group.max_retries < 0 else group.max_retries + 1,
        connect_interval=group.retry_interval,
        claim_tries=_claim_tries(conf),
        history_days=_history_days(conf),
    )


def _history_days(conf: cfg.ConfigOpts) -> int:
    """Return how long past changes are kept; the default if that group is not registered."""
    try:
        return int(conf.placement_server.history_days)
    except cfg.NoSuchOptError:
        return StoreOptions().history_days


def _claim_tries(conf: cfg.ConfigOpts) -> int:
    """Return how often to try a write; the default if group `placement` is not registered."""
    try:
        count = conf.placement.allocation_conflict_retry_count
    except cfg.NoSuchOptError:
        return StoreOptions().claim_tries
    return max(1, int(count))
