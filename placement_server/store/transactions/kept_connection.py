"""A connection that stays out of its pool for frequent statements."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

from sqlalchemy import Connection, Engine

KEPT_FOR: Final = 10.0
"""Seconds after which the connection returns to its pool, which may replace it."""

_Result = TypeVar("_Result")


class KeptConnection:
    """One connection that is used by one caller after the other. Thread safe.

    To take a connection out of its pool and to return it costs more than a frequent statement
    does. A caller who comes while it is in use gets another one from the pool.
    """

    def __init__(self, engine: Engine, recycle_time: float) -> None:
        """Keep nothing yet.

        :param engine: with a pool of two connections or more.
        :param recycle_time: seconds after which the pool replaces a connection; -1 for never.
        """
        self._engine = engine
        self._kept_for = KEPT_FOR if recycle_time < 0 else min(KEPT_FOR, recycle_time)
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._kept_until = 0.0

    def run(self, work: Callable[[Connection], _Result]) -> _Result:
        """Return what ``work`` does with a connection."""
        if not self._lock.acquire(blocking=False):
            return self._with_another(work)
        try:
            connection = self._current_connection()
            try:
                return work(connection)
            except BaseException:
                self._return_to_pool()
                raise
        finally:
            self._lock.release()

    def close(self) -> None:
        """Return the connection to its pool, unless it is in use. Idempotent."""
        if self._lock.acquire(blocking=False):
            try:
                self._return_to_pool()
            finally:
                self._lock.release()

    def _with_another(self, work: Callable[[Connection], _Result]) -> _Result:
        with self._engine.connect() as connection:
            return work(connection)

    def _current_connection(self) -> Connection:
        now = time.monotonic()
        if self._connection is None or now >= self._kept_until:
            self._return_to_pool()
            self._connection = self._engine.connect()
            self._kept_until = now + self._kept_for
        return self._connection

    def _return_to_pool(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
