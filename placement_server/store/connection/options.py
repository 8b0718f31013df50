"""What is told to the store about its database."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

_MAINTENANCE_LOCK_TIMEOUT: Final = 3600.0


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """The settings of one store; durations in seconds.

    The database ends a statement after ``statement_timeout`` (0: never), and one that waits for a
    lock after ``lock_timeout``.
    ``claim_tries`` is how often a write that lost a race is begun anew before the caller is told.
    The database ends a session that stays idle in a write transaction for ``write_idle_timeout``.
    ``connect_tries`` (-1: for ever) and ``connect_interval`` apply to the first connection only.
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

    def for_maintenance(self) -> StoreOptions:
        """The same for work that no client waits for, such as migrations: it may take its time."""
        return replace(self, statement_timeout=0.0, lock_timeout=_MAINTENANCE_LOCK_TIMEOUT)
