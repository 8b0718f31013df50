"""The options of a store, and those of group `placement_database` that set them."""

from __future__ import annotations

import logging
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import fields, replace
from oslo_config import cfg

from placement_server.store.errors import StoreUnavailable

LOG = logging.getLogger(__name__)

GROUP: Final = "placement_database"

_MAINTENANCE_LOCK_TIMEOUT: Final = 3600.0


class StoreOptions(Struct, frozen=True):
    """The settings of one store; durations in seconds.

    :ivar statement_timeout: after this time the database ends a statement; 0 means never.
    :ivar lock_timeout: after this time the database ends a statement that waits for a lock.
    :ivar write_idle_timeout: after this time the database ends a session that is idle in a write
        transaction.
    :ivar claim_tries: how often a write is tried in all before the caller gets the conflict.
    :ivar connect_tries: how often the first connection is tried; -1 means without limit.
    :ivar history_days: days for which past changes are kept; 0 keeps none.
    :ivar connect_interval: the time between these tries.
    :ivar is_interruptible: whether an operator waits, who may interrupt a statement.
    """

    connection_parameters: str = ""
    sqlite_synchronous: bool = True
    mysql_sql_mode: str = "TRADITIONAL"
    mysql_wsrep_sync_wait: int | None = None
    connection_recycle_time: int = 3600
    max_pool_size: int | None = None
    max_overflow: int | None = None
    pool_timeout: float | None = None
    connect_tries: int = 10
    connect_interval: float = 10.0
    connection_debug: int = 0
    connection_trace: bool = False
    statement_timeout: float = 60.0
    lock_timeout: float = 30.0
    write_idle_timeout: float = 30.0
    claim_tries: int = 10
    sync_on_startup: bool = False
    history_days: int = 7
    is_interruptible: bool = False

    def for_maintenance(self) -> StoreOptions:
        """Return these options with long limits, for work that no client waits for."""
        return replace(
            self,
            statement_timeout=0.0,
            lock_timeout=_MAINTENANCE_LOCK_TIMEOUT,
            is_interruptible=True,
        )


def connection_url(conf: cfg.ConfigOpts) -> str:
    """Return the URL of the database.

    :raises StoreUnavailable: none is configured.
    """
    url = conf[GROUP].connection
    if not url:
        files = ", ".join(conf.config_file or ())
        where = files or "the file that --config-file names, as none was read"
        raise StoreUnavailable(
            f"No database is configured: set [placement_database]connection in {where}, for "
            "example to sqlite:////var/lib/placement/placement.db."
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
