"""Metrics for Prometheus.

With several worker processes the numbers of all of them are added up, through the directory in
PROMETHEUS_MULTIPROC_DIR: ``placement-server serve`` sets it before this module is imported.
"""

import os
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

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST

# Seconds.
_LATENCIES: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)

REQUESTS: Final = Counter(
    "placement_http_requests", "Requests answered.", ("method", "route", "status")
)
REQUEST_SECONDS: Final = Histogram(
    "placement_http_request_seconds",
    "From the first byte to the application until its answer.",
    ("method", "route"),
    buckets=_LATENCIES,
)
SEARCHES: Final = Counter(
    "placement_candidate_searches",
    "Searches for allocation candidates: answered, explained, counted (capacity, fragmentation), "
    "refused (bad query), gave_up (deadline, memory, or no place for a heavy one) or failed (an "
    "error of the server or its database).",
    ("result",),
)
SEARCH_SECONDS: Final = Histogram(
    "placement_candidate_search_seconds",
    "Time of searches for allocation candidates, with the reading of changes before, by result.",
    ("result",),
    buckets=_LATENCIES,
)
GIVEN_UP: Final = Counter(
    "placement_candidate_searches_given_up",
    "Searches that gave up, by cause: deadline, candidates (too many for an answer), memory (of "
    "one search), worker_memory (of all) or heavy (no place among heavy ones).",
    ("cause",),
)
CLAIMS: Final = Counter(
    "placement_claims",
    "Allocation writes: written, refused (does not fit) or lost (a generation was stale).",
    ("result",),
)
CLAIM_SECONDS: Final = Histogram(
    "placement_claim_seconds",
    "Time of allocation writes in the database, by result; failed: an error of the server.",
    ("result",),
    buckets=_LATENCIES,
)
CLAIMS_REJECTED: Final = Counter(
    "placement_claims_rejected",
    "Allocation writes that were refused or lost, by cause: capacity (too little is free), units "
    "(an amount that an inventory does not give out), inventory (there is none), candidates (none "
    "of several fits), consumer_generation or concurrent_update.",
    ("cause",),
)
CANDIDATES_LOST: Final = Counter(
    "placement_claim_candidates_lost",
    "Candidates of claims with alternatives that could not be had: short (too little was free) or "
    "unsuitable (its provider, class or inventory is gone, or does not give out such amounts).",
    ("cause",),
)
INDEX_TREES: Final = Gauge(
    "placement_index_trees",
    "Provider trees in the index, of the worker that has the most.",
    multiprocess_mode="livemax",
)
INDEX_PROVIDERS: Final = Gauge(
    "placement_index_slots",
    "Providers in the index with those of former states, of the worker that has the most.",
    multiprocess_mode="livemax",
)
INDEX_LAG: Final = Gauge(
    "placement_index_lag_seconds",
    "For how long the index has waited for a smaller id of a change that may still be committed, "
    "as of its last reading.",
    multiprocess_mode="livemax",
)
INDEX_READ_SECONDS: Final = Histogram(
    "placement_index_read_seconds",
    "Time of reading changes before a search: there was nothing, there were changes, or everything "
    "was read.",
    ("what",),
    buckets=_LATENCIES,
)
POOL_OPEN: Final = Gauge(
    "placement_database_connections",
    "Connections to the database that the workers have open.",
    multiprocess_mode="livesum",
)
POOL_IN_USE: Final = Gauge(
    "placement_database_connections_in_use",
    "Connections to the database that serve a request now, or are kept for the next one.",
    multiprocess_mode="livesum",
)
POOL_LIMIT: Final = Gauge(
    "placement_database_connections_limit",
    "Connections to the database that the workers may have; absent where there is no limit.",
    multiprocess_mode="livesum",
)
WATCHERS: Final = Gauge(
    "placement_changes_watchers",
    "Requests that wait for changes.",
    multiprocess_mode="livesum",
)
FEED_LAG: Final = Gauge(
    "placement_changes_lag_seconds",
    "For how long the feed of changes is held back by a smaller id that may still be committed, "
    "as of its last reading.",
    multiprocess_mode="livemax",
)


def exposition(now: Collector) -> bytes:
    """Return the text that Prometheus scrapes.

    :param now: collects what is read at the moment of the scrape.
    """
    registry = REGISTRY
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        registry = CollectorRegistry()
        multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    read_now = CollectorRegistry()
    read_now.register(now)
    return generate_latest(registry) + generate_latest(read_now)
