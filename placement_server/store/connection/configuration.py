"""The settings of the store, from the options of group `placement_database`."""

from __future__ import annotations

import logging
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
    return StoreOptions(
        connection_parameters=group.connection_parameters,
        sqlite_synchronous=group.sqlite_synchronous,
        mysql_sql_mode=group.mysql_sql_mode,
        mysql_wsrep_sync_wait=group.mysql_wsrep_sync_wait,
        connection_recycle_time=group.connection_recycle_time,
        max_pool_size=group.max_pool_size,
        max_overflow=group.max_overflow,
        pool_timeout=group.pool_timeout,
        connect_tries=group.max_retries if group.max_retries < 0 else group.max_retries + 1,
        connect_interval=group.retry_interval,
        connection_debug=group.connection_debug,
        connection_trace=group.connection_trace,
        statement_timeout=group.statement_timeout,
        lock_timeout=group.lock_timeout,
        sync_on_startup=group.sync_on_startup,
        claim_tries=_claim_tries(conf),
    )


def _claim_tries(conf: cfg.ConfigOpts) -> int:
    """Return how often to try a write; the default if group `placement` is not registered."""
    try:
        count = conf.placement.allocation_conflict_retry_count
    except cfg.NoSuchOptError:
        return StoreOptions().claim_tries
    return max(1, int(count))
