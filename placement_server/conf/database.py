"""Options of group ``placement_database``: where the data is and how it is reached."""

from __future__ import annotations

import logging
from typing import Any

from oslo_config import cfg

from placement_server.store.errors import StoreUnavailable
from placement_server.store.options import StoreOptions

LOG = logging.getLogger(__name__)

GROUP = "placement_database"

OPTIONS = [
    cfg.StrOpt(
        "connection",
        secret=True,
        help=(
            "The SQLAlchemy URL of the database, such as sqlite:////var/lib/placement/placement.db,"
            " postgresql+psycopg://user:secret@host/placement or "
            "mysql+pymysql://user:secret@host/placement. Required: the service does not start "
            "without it."
        ),
    ),
    cfg.StrOpt(
        "connection_parameters",
        default="",
        help="Parameters to add to the URL when connecting, as in param1=value1&param2=value2.",
    ),
    cfg.BoolOpt(
        "sqlite_synchronous",
        default=True,
        help=(
            "With SQLite, wait for the disk at every commit. False is much faster and survives a "
            "crash of the process, but not one of the machine."
        ),
    ),
    cfg.StrOpt(
        "slave_connection",
        secret=True,
        help=(
            "Accepted so that an existing configuration keeps working, and not connected to: "
            "clients rely on reading what they have just written, which a replica cannot "
            "promise. A warning says so at start."
        ),
    ),
    cfg.StrOpt(
        "mysql_sql_mode",
        default="TRADITIONAL",
        help="The SQL mode of MySQL and MariaDB sessions; it overrides the server's own.",
    ),
    cfg.IntOpt(
        "connection_recycle_time",
        default=3600,
        help=(
            "Seconds after which a pooled connection is replaced when it is next used. Keep it "
            "below the time after which the database or a firewall drops idle connections."
        ),
    ),
    cfg.IntOpt(
        "max_pool_size",
        help=(
            "Connections that a process keeps open to the database, for reads and for writes "
            "each. 0 means without limit. Unset: 5."
        ),
    ),
    cfg.IntOpt(
        "max_retries",
        default=10,
        help="How often to try the first connection at start; -1 means until it succeeds.",
    ),
    cfg.IntOpt("retry_interval", default=10, help="Seconds between those tries."),
    cfg.IntOpt(
        "max_overflow",
        help=(
            "Connections beyond max_pool_size that may be opened under load and are closed "
            "again. Unset: 10."
        ),
    ),
    cfg.IntOpt(
        "connection_debug",
        default=0,
        min=0,
        max=100,
        help="SQL in the log: 0 nothing, 50 statements, 100 statements and results.",
    ),
    cfg.BoolOpt(
        "connection_trace",
        default=False,
        help="Add the name of the store's function to each SQL statement, as a comment.",
    ),
    cfg.IntOpt(
        "pool_timeout",
        help="Seconds to wait for a free connection of the pool. Unset: 30.",
    ),
    cfg.BoolOpt(
        "sync_on_startup",
        default=False,
        help=(
            "Take the schema forward when the service starts. Any number of workers may start at "
            "the same time: one does it, the others wait."
        ),
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTIONS, group=GROUP)


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    return [(GROUP, OPTIONS)]


def connection(conf: cfg.ConfigOpts) -> str:
    """The URL of the database. Raises StoreUnavailable when it is not configured."""
    url = conf[GROUP].connection
    if not url:
        raise StoreUnavailable(
            "No database is configured: set [placement_database]connection, for example to "
            "sqlite:////var/lib/placement/placement.db."
        )
    if conf[GROUP].slave_connection:
        LOG.warning(
            "[placement_database]slave_connection is not used: all reads go to connection, so "
            "that clients see what they wrote."
        )
    return str(url)


def store_options(conf: cfg.ConfigOpts) -> StoreOptions:
    """The store's settings as configured."""
    group: Any = conf[GROUP]
    return StoreOptions(
        connection_parameters=group.connection_parameters,
        sqlite_synchronous=group.sqlite_synchronous,
        mysql_sql_mode=group.mysql_sql_mode,
        connection_recycle_time=group.connection_recycle_time,
        max_pool_size=group.max_pool_size,
        max_overflow=group.max_overflow,
        pool_timeout=group.pool_timeout,
        connect_tries=group.max_retries if group.max_retries < 0 else group.max_retries + 1,
        connect_interval=group.retry_interval,
        connection_debug=group.connection_debug,
        connection_trace=group.connection_trace,
        sync_on_startup=group.sync_on_startup,
        claim_tries=_claim_tries(conf),
    )


def _claim_tries(conf: cfg.ConfigOpts) -> int:
    """``[placement]allocation_conflict_retry_count`` where that group is registered."""
    try:
        count = conf.placement.allocation_conflict_retry_count
    except cfg.NoSuchOptError:
        return StoreOptions().claim_tries
    return max(1, int(count))
