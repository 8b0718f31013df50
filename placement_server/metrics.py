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

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST

REQUESTS: Final = Counter(
    "placement_http_requests", "Requests answered.", ("method", "route", "status")
)
REQUEST_SECONDS: Final = Histogram(
    "placement_http_request_seconds",
    "From the first byte to the application until its answer.",
    ("method", "route"),
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
SEARCHES: Final = Counter(
    "placement_candidate_searches",
    "Searches for allocation candidates: answered, explained, counted (capacity, fragmentation), "
    "refused (bad query) or gave_up (deadline, memory, or no place for a heavy one).",
    ("result",),
)
SEARCH_SECONDS: Final = Histogram(
    "placement_candidate_search_seconds", "Time spent in searches for allocation candidates."
)
CLAIMS: Final = Counter(
    "placement_claims",
    "Allocation writes: written, refused (does not fit) or lost (a generation was stale).",
    ("result",),
)
CANDIDATES_LOST: Final = Counter(
    "placement_claim_candidates_lost",
    "Candidates of claims with alternatives that could not be had: short (too little was free) or "
    "unsuitable (its provider, class or inventory is gone, or does not give out such amounts).",
    ("cause",),
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


def exposition() -> bytes:
    """Return the text that Prometheus scrapes."""
    registry = REGISTRY
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        registry = CollectorRegistry()
        multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return generate_latest(registry)
