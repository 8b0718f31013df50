"""Options of group ``placement_database``: the place of the data, and the connection to it."""

from __future__ import annotations

from oslo_config import cfg

GROUP = "placement_database"

OPTIONS = [
    cfg.StrOpt(
        "connection",
        secret=True,
        help=(
            "The SQLAlchemy URL of the database, such as sqlite:////var/lib/placement/placement.db,"
            " postgresql+psycopg://user:secret@host/placement or "
            "mysql+pymysql://user:secret@host/placement. URLs of psycopg2 and mysqldb are read as "
            "these. Required: the service does not start without it."
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
        "mysql_wsrep_sync_wait",
        min=0,
        max=15,
        help=(
            "For Galera clusters that are written to on more than one node: 1 lets reads wait "
            "until this node has applied what the others committed before, so that a client "
            "sees its own writes through any server. Unset: as the database is configured."
        ),
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
        help=(
            "How often to try the first connection again at start while the database may still "
            "come up; -1 means until it succeeds. What does not pass by itself, such as a wrong "
            "password, is not tried again."
        ),
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
    cfg.FloatOpt(
        "statement_timeout",
        default=60.0,
        min=0.0,
        help=(
            "Seconds after which the database ends a statement of the service: the transaction is "
            "rolled back and the client gets a 503, so nothing runs on for a client that has long "
            "given up. 0 means never. It is statement_timeout of PostgreSQL, max_statement_time "
            "of MariaDB and, for reads only, max_execution_time of MySQL; SQLite has none. Raise "
            "it when the log says that reading all providers at the start of a worker took "
            "longer. Commands of placement-manage and migrations at start are not limited."
        ),
    ),
    cfg.FloatOpt(
        "lock_timeout",
        default=30.0,
        min=0.1,
        help=(
            "Seconds that a statement waits for a lock that another transaction holds; then the "
            "transaction is rolled back and the client gets a 503. It is lock_timeout of "
            "PostgreSQL, innodb_lock_wait_timeout of MariaDB and MySQL (whole seconds) and the "
            "busy timeout of SQLite. Keep it below statement_timeout, which counts the waiting "
            "too. Commands of placement-manage wait for an hour instead."
        ),
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
