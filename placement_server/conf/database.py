"""Options of group `placement_database`: the place of the data, and the connection to it."""

from __future__ import annotations

from oslo_config import cfg

GROUP = "placement_database"

OPTS = [
    cfg.StrOpt(
        "connection",
        secret=True,
        help=(
            "SQLAlchemy URL of the database, for example "
            "sqlite:////var/lib/placement/placement.db, "
            "postgresql+psycopg://user:secret@host/placement or "
            "mysql+pymysql://user:secret@host/placement. URLs for psycopg2 and mysqldb are read as "
            "these. Required: the service does not start without it."
        ),
    ),
    cfg.StrOpt(
        "connection_parameters",
        default="",
        help="Parameters that are added to the URL, for example param1=value1&param2=value2.",
    ),
    cfg.BoolOpt(
        "sqlite_synchronous",
        default=True,
        help=(
            "With SQLite, wait for the disk at each commit. If false, commits are much faster; a "
            "crash of the process then loses nothing, but a crash of the machine can damage the "
            "database."
        ),
    ),
    cfg.StrOpt(
        "slave_connection",
        secret=True,
        help=(
            "No effect, except a warning at start; accepted so that an existing configuration "
            "stays valid. Clients must be able to read what they have just written, which a "
            "replica does not guarantee."
        ),
    ),
    cfg.StrOpt(
        "mysql_sql_mode",
        default="TRADITIONAL",
        help="SQL mode of MySQL and MariaDB sessions. It overrides the mode of the server.",
    ),
    cfg.IntOpt(
        "mysql_wsrep_sync_wait",
        min=0,
        max=15,
        help=(
            "Value of wsrep_sync_wait for Galera clusters with writes on more than one node. With "
            "1, a read waits until the node has applied all earlier commits of other nodes, so "
            "that a client sees its own writes through any server. Unset: the setting of the "
            "database."
        ),
    ),
    cfg.IntOpt(
        "connection_recycle_time",
        default=3600,
        help=(
            "Age in seconds from which a pooled connection is replaced at its next use. Keep it "
            "below the time after which the database or a firewall closes idle connections."
        ),
    ),
    cfg.IntOpt(
        "max_pool_size",
        help=(
            "Number of connections that a process keeps open to the database, separately for reads "
            "and for writes. 0: no limit. Unset: 5."
        ),
    ),
    cfg.IntOpt(
        "max_retries",
        default=10,
        help=(
            "Number of times that the first connection at start is tried again while the database "
            "may still be starting. -1: until it succeeds. Errors that do not pass by themselves, "
            "such as a wrong password, are not tried again."
        ),
    ),
    cfg.IntOpt(
        "retry_interval", default=10, help="Seconds between two tries of the first connection."
    ),
    cfg.IntOpt(
        "max_overflow",
        help=(
            "Number of additional connections beyond max_pool_size that may be opened under load. "
            "They are closed after use. Unset: 10."
        ),
    ),
    cfg.IntOpt(
        "connection_debug",
        default=0,
        min=0,
        max=100,
        help="SQL in the log. 0: nothing; 50: statements; 100: statements and results.",
    ),
    cfg.BoolOpt(
        "connection_trace",
        default=False,
        help="Add the name of the function of the store to each SQL statement, as a comment.",
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
            "Seconds after which the database cancels a statement of the service. The transaction "
            "is rolled back and the client gets a 503. 0: no limit. It sets statement_timeout of "
            "PostgreSQL, max_statement_time of MariaDB and, for reads only, max_execution_time of "
            "MySQL; SQLite has no such limit. Raise it if the log reports that reading all "
            "providers at the start of a worker took longer. Commands of placement-manage and "
            "migrations at start have no limit."
        ),
    ),
    cfg.FloatOpt(
        "lock_timeout",
        default=30.0,
        min=0.1,
        help=(
            "Seconds that a statement waits for a lock of another transaction. After that the "
            "transaction is rolled back and the client gets a 503. It sets lock_timeout of "
            "PostgreSQL, innodb_lock_wait_timeout of MariaDB and MySQL (whole seconds) and the "
            "busy timeout of SQLite. Keep it below statement_timeout, which includes the wait. "
            "Commands of placement-manage wait up to an hour."
        ),
    ),
    cfg.BoolOpt(
        "sync_on_startup",
        default=False,
        help=(
            "Upgrade the schema of the database when the service starts. If several workers start "
            "at the same time, one upgrades and the others wait."
        ),
    ),
]
