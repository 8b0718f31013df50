"""The options of a store."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

_MAINTENANCE_LOCK_TIMEOUT: Final = 3600.0


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """The settings of one store; durations in seconds.

    :ivar statement_timeout: after this time the database ends a statement; 0 means never.
    :ivar lock_timeout: after this time the database ends a statement that waits for a lock.
    :ivar write_idle_timeout: after this time the database ends a session that is idle in a write
        transaction.
    :ivar claim_tries: how often a write is tried in all before the caller gets the conflict.
    :ivar connect_tries: how often the first connection is tried; -1 means without limit.
    :ivar history_days: days for which past changes are kept; 0 keeps none.
    :ivar connect_interval: the time between these tries.
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

    def for_maintenance(self) -> StoreOptions:
        """Return these options with long limits, for work that no client waits for."""
        return replace(self, statement_timeout=0.0, lock_timeout=_MAINTENANCE_LOCK_TIMEOUT)
