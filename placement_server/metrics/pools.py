"""Metrics of the connections to the database, kept up to date by events of their pools."""

from __future__ import annotations

from typing import Any

from sqlalchemy import event
from sqlalchemy.pool import Pool, QueuePool

from placement_server.metrics import metrics
from placement_server.store.store import Store


def observe_pools(store: Store) -> None:
    """Count the connections of a store from now on."""
    for engine in store.all_engines():
        _observe(engine.pool)


def _observe(pool: Pool) -> None:
    def add(gauge: Any, amount: int) -> Any:
        return lambda *_: gauge.inc(amount)

    event.listen(pool, "connect", add(metrics.POOL_OPEN, 1))
    event.listen(pool, "close", add(metrics.POOL_OPEN, -1))
    event.listen(pool, "checkout", add(metrics.POOL_IN_USE, 1))
    event.listen(pool, "checkin", add(metrics.POOL_IN_USE, -1))
    if not isinstance(pool, QueuePool):
        return
    # Connections of the start are in the pool already.
    metrics.POOL_OPEN.inc(pool.checkedin())
    if pool._max_overflow >= 0:
        metrics.POOL_LIMIT.inc(pool.size() + pool._max_overflow)
