"""Metrics of a scheduler for Prometheus, whose library is imported only where they are shown."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from compute_agent import __version__
from compute_agent.errors import (
    AllocationDeleteFailed,
    AllocationMoveFailed,
    AllocationUpdateFailed,
    ComputeAgentError,
    PlacementError,
    PlacementUnavailable,
)
from compute_agent.programs.metrics_server import build_info
from compute_agent.request.errors import InvalidRequest
from compute_agent.scheduler.claiming.journal import Journal, JournalUnusable
from compute_agent.scheduler.errors import MoveRefused, NoValidHost
from compute_agent.scheduler.outcomes.causes import FilterCause
from compute_agent.scheduler.outcomes.observer import MoveState, Outcome
from compute_agent.scheduler.service.calls import Calls

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

LOG = logging.getLogger(__name__)

PREFIX = "compute_scheduler"
CANDIDATE_BUCKETS = (0, 1, 3, 10, 30, 100, 300, 1000, 3000, 10000)
SECONDS_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)

_RESULTS: tuple[tuple[type[ComputeAgentError], str], ...] = (
    (NoValidHost, "no_valid_host"),
    (InvalidRequest, "invalid"),
    (MoveRefused, "conflict"),
    (AllocationUpdateFailed, "conflict"),
    (AllocationDeleteFailed, "conflict"),
    (AllocationMoveFailed, "conflict"),
    (PlacementUnavailable, "placement_unavailable"),
    (PlacementError, "placement_error"),
    (ComputeAgentError, "failed"),
)


def result_of(error: BaseException | None) -> str:
    """Return the label of a call that ended with this error, or with none."""
    if error is None:
        return "answered"
    return next((name for kind, name in _RESULTS if isinstance(error, kind)), "defect")


class CountedCalls(Calls):
    """Calls in progress, and counts of all that a scheduler does.

    :param registry: gets the metrics of this process.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        from prometheus_client import Counter as CounterMetric
        from prometheus_client import Gauge, Histogram

        super().__init__()
        counter = partial(CounterMetric, namespace=PREFIX, registry=registry)
        gauge = partial(Gauge, namespace=PREFIX, registry=registry)
        histogram = partial(Histogram, namespace=PREFIX, registry=registry)
        text = "Calls on the message bus, by method and result."
        self._requests = counter("requests", text, ["method", "result"])
        self._seconds = histogram(
            "request_duration_seconds",
            "Seconds from the arrival of a call to its end.",
            ["method"],
            buckets=SECONDS_BUCKETS,
        )
        self._in_progress = gauge(
            "requests_in_progress", "Calls in progress.", multiprocess_mode="livesum"
        )
        text = "Candidates that placement returned to a search."
        self._candidates = histogram("candidates", text, buckets=CANDIDATE_BUCKETS)
        text = "Hosts that a filter rejected, by filter."
        self._rejected_hosts = counter("filter_rejected_hosts", text, ["filter"])
        self._claims = counter("claims", "Claims, by outcome.", ["outcome"])
        text = "Claims that were tried again after a claim for the same instance was lost."
        self._retries = counter("claim_retries", text)
        text = "Moves, by kind and the state that they reached."
        self._moves = counter("moves", text, ["kind", "state"])
        text = "Age in seconds of the oldest announcement of a host in placement; 0 without any."
        self._oldest = gauge("oldest_announcement_age_seconds", text, multiprocess_mode="livemax")
        text = "1 if placement answers, else 0."
        self._placement_up = gauge("placement_up", text, multiprocess_mode="livemin")
        text = "1 if the message bus takes messages, else 0."
        self._bus_up = gauge("bus_up", text, multiprocess_mode="livemin")

    @contextmanager
    def answering(self, method: str) -> Iterator[None]:
        """See `Observer`."""
        began, failure = time.monotonic(), None
        self._in_progress.inc()
        try:
            with super().answering(method):
                yield
        except BaseException as error:
            failure = error
            raise
        finally:
            self._in_progress.dec()
            self._seconds.labels(method).observe(time.monotonic() - began)
            self._requests.labels(method, result_of(failure)).inc()

    def on_search(self, candidates: int) -> None:
        """See `Observer`."""
        self._candidates.observe(candidates)

    def on_filtering(self, causes: Sequence[FilterCause]) -> None:
        """See `Observer`."""
        for cause in causes:
            self._rejected_hosts.labels(cause.name).inc(cause.hosts_before - cause.hosts_left)

    def on_claim(self, outcome: Outcome, *, again: bool) -> None:
        """See `Observer`."""
        self._claims.labels(str(outcome)).inc()
        if again:
            self._retries.inc()

    def on_move(self, kind: str, state: MoveState) -> None:
        """See `Observer`."""
        self._moves.labels(kind, str(state)).inc()

    def on_upkeep(self, *, placement_up: bool, bus_up: bool, oldest_announcement: float) -> None:
        """See `Calls`."""
        self._placement_up.set(int(placement_up))
        self._bus_up.set(int(bus_up))
        self._oldest.set(oldest_announcement)


class JournalCollector:
    """The journal, which all processes share, as prometheus_client asks of a collector."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def collect(self) -> Iterator[Metric]:
        """Yield the version, how many entries wait, and whether the journal can be used."""
        from prometheus_client.core import GaugeMetricFamily

        entry_counts = GaugeMetricFamily(
            f"{PREFIX}_journal_entries",
            "Entries of the journal that are to be finished or undone, by operation.",
            labels=["operation"],
        )
        usable = True
        try:
            self._journal.check()
            entries = self._journal.entries()
            numbers = Counter(str(entry.get("op")) for entry in entries.values())
            for operation, number in sorted(numbers.items()):
                entry_counts.add_metric([operation], number)
        except JournalUnusable as error:
            LOG.error("%s", error)
            usable = False
        yield build_info(PREFIX, __version__)
        yield entry_counts
        yield GaugeMetricFamily(
            f"{PREFIX}_journal_usable",
            "1 if the journal can be read and written, else 0.",
            value=int(usable),
        )
