"""Options of group `placement_database`: the place of the data, and the connection to it."""

from __future__ import annotations

from compute_agent.programs.declared_options import options

GROUP = "placement_database"

OPTS = options("""
connection: text secret
    SQLAlchemy URL of the database, for example sqlite:////var/lib/placement/placement.db,
    postgresql+psycopg://user:secret@host/placement or mysql+pymysql://user:secret@host/placement.
    URLs for psycopg2 and mysqldb are read as these. Required: the service does not start without
    it.

connection_parameters: text ()
    Parameters that are added to the URL, for example param1=value1&param2=value2.

sqlite_synchronous: bool (true)
    With SQLite, wait for the disk at each commit. If false, commits are much faster; a crash of the
    process then loses nothing, but a crash of the machine can damage the database.

slave_connection: text secret
    No effect, except a warning at start; accepted so that an existing configuration stays valid.
    Clients must be able to read what they have just written, which a replica does not guarantee.

mysql_sql_mode: text (TRADITIONAL)
    SQL mode of MySQL and MariaDB sessions. It overrides the mode of the server.

mysql_wsrep_sync_wait: int 0..15
    Value of wsrep_sync_wait for Galera clusters with writes on more than one node. With 1, a read
    waits until the node has applied all earlier commits of other nodes, so that a client sees its
    own writes through any server. Unset: the setting of the database.

connection_recycle_time: int (3600)
    Age in seconds from which a pooled connection is replaced at its next use. Keep it below the
    time after which the database or a firewall closes idle connections.

max_pool_size: int
    Number of connections that a process keeps open to the database, separately for reads and for
    writes. 0: no limit. Unset: 5.

max_retries: int (10)
    Number of times that the first connection at start is tried again while the database may still
    be starting. -1: until it succeeds. Errors that do not pass by themselves, such as a wrong
    password, are not tried again.

retry_interval: int (10)
    Seconds between two tries of the first connection.

max_overflow: int
    Number of additional connections beyond max_pool_size that may be opened under load. They are
    closed after use. Unset: 10.

connection_debug: int 0..100 (0)
    SQL in the log. 0: nothing; 50: statements; 100: statements and results.

connection_trace: bool (false)
    Add the name of the function of the store to each SQL statement, as a comment.

pool_timeout: int
    Seconds to wait for a free connection of the pool. Unset: 30.

statement_timeout: float 0.. (60)
    Seconds after which the database cancels a statement of the service. The transaction is rolled
    back and the client gets a 503. 0: no limit. It sets statement_timeout of PostgreSQL,
    max_statement_time of MariaDB and, for reads only, max_execution_time of MySQL; SQLite has no
    such limit. Raise it if the log reports that reading all providers at the start of a worker took
    longer. Commands of placement-manage and migrations at start have no limit.

lock_timeout: float 0.1.. (30)
    Seconds that a statement waits for a lock of another transaction. After that the transaction is
    rolled back and the client gets a 503. It sets lock_timeout of PostgreSQL,
    innodb_lock_wait_timeout of MariaDB and MySQL (whole seconds) and the busy timeout of SQLite.
    Keep it below statement_timeout, which includes the wait. Commands of placement-manage wait up
    to an hour.

sync_on_startup: bool (false)
    Upgrade the schema of the database when the service starts. If several workers start at the same
    time, one upgrades and the others wait.
""")
