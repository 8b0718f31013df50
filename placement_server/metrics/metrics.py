"""Metrics for Prometheus.

With several worker processes the numbers of all of them are added up, through the directory in
PROMETHEUS_MULTIPROC_DIR: `placement-server serve` sets it before this module is imported.
"""

import os
from pathlib import Path
from typing import Final

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    REGISTRY,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
    multiprocess,
)
from prometheus_client.registry import Collector
from sqlalchemy import event
from sqlalchemy.pool import ConnectionPoolEntry, QueuePool

from placement_server.store.engine import connection_limit
from placement_server.store.store import Store

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST

# Seconds.
_LATENCIES: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)

REQUESTS: Final = Counter(
    "placement_http_requests", "HTTP requests that were answered.", ("method", "route", "status")
)
REQUEST_SECONDS: Final = Histogram(
    "placement_http_request_seconds",
    "Seconds from the start of a request in the application until its answer.",
    ("method", "route"),
    buckets=_LATENCIES,
)
SEARCH_SECONDS: Final = Histogram(
    "placement_candidate_search_seconds",
    "Seconds of searches for allocation candidates, with the read of changes before, by result: "
    "answered, explained, counted (capacity, fragmentation), planned (make_room), refused (bad "
    "query), gave_up (deadline, memory, or too many heavy searches) or failed (error of the server "
    "or its database).",
    ("result",),
    buckets=_LATENCIES,
)
GIVEN_UP: Final = Counter(
    "placement_candidate_searches_given_up",
    "Searches that were given up, by cause: deadline, candidates (too many for an answer), memory "
    "(of one search), worker_memory (of all searches) or heavy (too many heavy searches).",
    ("cause",),
)
CLAIM_SECONDS: Final = Histogram(
    "placement_claim_seconds",
    "Seconds of writes of allocations in the database, by result: written, refused (no room), lost "
    "(stale generation) or failed (error of the server).",
    ("result",),
    buckets=_LATENCIES,
)
CLAIMS_REJECTED: Final = Counter(
    "placement_claims_rejected",
    "Writes of allocations that were refused or lost, by cause: capacity (too little is free), "
    "units (the inventory does not allow the amount), inventory (there is none), "
    "consumer_generation or concurrent_update.",
    ("cause",),
)
INDEX_TREES: Final = Gauge(
    "placement_index_trees",
    "Provider trees in the index; the largest number of any worker.",
    multiprocess_mode="livemax",
)
INDEX_PROVIDERS: Final = Gauge(
    "placement_index_slots",
    "Providers in the index, including former states; the largest number of any worker.",
    multiprocess_mode="livemax",
)
INDEX_LAG: Final = Gauge(
    "placement_index_lag_seconds",
    "Seconds that the index had waited, at its last read, for a change with a smaller id that may "
    "still be committed.",
    multiprocess_mode="livemax",
)
INDEX_READ_SECONDS: Final = Histogram(
    "placement_index_read_seconds",
    "Seconds of the read of changes before a search, by what was read: nothing, changes, or "
    "everything.",
    ("what",),
    buckets=_LATENCIES,
)
POOL_OPEN: Final = Gauge(
    "placement_database_connections",
    "Open connections of the workers to the database.",
    multiprocess_mode="livesum",
)
POOL_IN_USE: Final = Gauge(
    "placement_database_connections_in_use",
    "Connections to the database that serve a request, or are reserved for the next request.",
    multiprocess_mode="livesum",
)
POOL_LIMIT: Final = Gauge(
    "placement_database_connections_limit",
    "Maximum number of connections of the workers to the database; absent without a limit.",
    multiprocess_mode="livesum",
)
WATCHERS: Final = Gauge(
    "placement_changes_watchers",
    "Requests that are waiting for changes.",
    multiprocess_mode="livesum",
)
FEED_LAG: Final = Gauge(
    "placement_changes_lag_seconds",
    "Seconds that the feed of changes had waited, at its last read, for a change with a smaller id "
    "that may still be committed.",
    multiprocess_mode="livemax",
)
CONFIGURATION_READ: Final = Gauge(
    "placement_configuration_read",
    "1 if a file that placement-server serve reads again while it runs could be used when it was "
    "last read, else 0.",
    ("file",),
    multiprocess_mode="livemax",
)
"""Set by the parent of the workers, which have 0 here."""
TLS_EXPIRY: Final = Gauge(
    "placement_tls_certificate_expiry_timestamp_seconds",
    "When the certificate of the server ends, in seconds since the epoch.",
    ("file",),
    multiprocess_mode="livemax",
)
"""Set by the parent, as `CONFIGURATION_READ`."""


def observe_pools(store: Store) -> None:
    """Count the connections of a store from now on."""
    for engine in store.all_engines():
        pool = engine.pool
        event.listen(pool, "connect", lambda *_: POOL_OPEN.inc())
        event.listen(pool, "close", lambda *_: POOL_OPEN.dec())
        event.listen(pool, "checkout", _on_checkout)
        event.listen(pool, "checkin", _on_checkin)
        if isinstance(pool, QueuePool):
            # Connections of the start are open already, one of them perhaps kept for writes.
            POOL_OPEN.inc(pool.checkedin() + pool.checkedout())
            POOL_LIMIT.inc(connection_limit(pool) or 0)


def _on_checkout(_connection: object, record: ConnectionPoolEntry, _proxy: object) -> None:
    if (info := record.record_info) is not None:
        info["is_in_use"] = True
    POOL_IN_USE.inc()


def _on_checkin(_connection: object, record: ConnectionPoolEntry) -> None:
    # one that could not be made is given back too
    if record.record_info and record.record_info.pop("is_in_use", False):
        POOL_IN_USE.dec()


def exposition(now: Collector) -> bytes:
    """Return the text that Prometheus scrapes.

    :param now: collects what is read at the moment of the scrape.
    """
    registry = REGISTRY
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        _forget_ended_workers(Path(os.environ["PROMETHEUS_MULTIPROC_DIR"]))
        registry = CollectorRegistry()
        multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    read_now = CollectorRegistry()
    read_now.register(now)
    return generate_latest(registry) + generate_latest(read_now)


def _forget_ended_workers(directory: Path) -> None:
    """Leave out what only the living have, such as requests that wait, of workers that ended."""
    for pid in {int(file.stem.rpartition("_")[2]) for file in directory.glob("gauge_live*.db")}:
        if not Path(f"/proc/{pid}").exists():
            multiprocess.mark_process_dead(pid, str(directory))  # type: ignore[no-untyped-call]
