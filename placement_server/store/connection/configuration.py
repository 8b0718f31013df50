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
        claim_tries=max(
            1,
            _number(
                conf, "placement", "allocation_conflict_retry_count", StoreOptions().claim_tries
            ),
        ),
        history_days=_number(conf, "placement_server", "history_days", StoreOptions().history_days),
    )


def _number(conf: cfg.ConfigOpts, group: str, name: str, default: int) -> int:
    """Return an option of another group; the default if that is not registered."""
    try:
        return int(conf[group][name])
    except cfg.NoSuchOptError:
        return default
