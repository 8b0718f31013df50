"""Calls in progress, and metrics for Prometheus, of one port however many processes there are.

Worker processes keep their values in files of one directory, which the process that looks after
them adds up when it is asked. So counters do not go back when a worker is replaced. A port for each
worker would have to be found by Prometheus, and would lose what a dead worker has counted.
prometheus_client uses files if it is imported with the directory in the environment; where nothing
is shown, it is not imported.
"""

from __future__ import annotations

import itertools
import logging
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from compute_agent import __version__
from compute_agent.errors import (
    AllocationDeleteFailed,
    AllocationMoveFailed,
    AllocationUpdateFailed,
    ComputeAgentError,
    InvalidConfiguration,
    PlacementError,
    PlacementUnavailable,
)
from compute_agent.placement.transports.transport import Request, Response, Transport
from compute_agent.programs.metrics_server import MetricsServer, build_info
from compute_agent.request.errors import InvalidRequest
from compute_agent.scheduler.claiming.journal import Journal, JournalUnusable
from compute_agent.scheduler.errors import MoveRefused, NoValidHost
from compute_agent.scheduler.outcomes import FilterCause, MoveState, Observer, Outcome

if TYPE_CHECKING:
    from oslo_config import cfg
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric


class Calls(Observer):
    """Calls in progress.  Safe in several threads.

    :param clock: seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._running_calls: dict[int, tuple[str, float]] = {}
        self._has_moved = False

    @contextmanager
    def answering(self, method: str) -> Iterator[None]:
        """See `Observer`."""
        number = next(self._numbers)
        with self._lock:
            self._running_calls[number] = (method, self._clock())
        try:
            yield
        finally:
            with self._lock:
                del self._running_calls[number]
                self._has_moved = True

    def record_progress(self) -> None:
        """Note that something a call waited for has happened."""
        with self._lock:
            self._has_moved = True

    def on_upkeep(self, *, placement_up: bool, bus_up: bool, oldest_announcement: float) -> None:
        """Hear, from time to time, of what calls depend on; ages in seconds."""

    def on_reload(self, *, succeeded: bool) -> None:
        """Hear whether the last reload could use what it read."""

    def move_on(self) -> bool:
        """Return whether calls have moved on since this was last asked, or none is in progress."""
        with self._lock:
            has_moved, self._has_moved = self._has_moved, False
            return has_moved or not self._running_calls

    def in_progress(self) -> list[dict[str, Any]]:
        """Return the calls in progress, the oldest first, with the seconds since they came."""
        now = self._clock()
        with self._lock:
            return [
                {"method": method, "seconds": round(now - since, 3)}
                for method, since in self._running_calls.values()
            ]


class WatchedTransport:
    """A way to placement that notes every answer as progress.

    :param on_answer: called after each answer, in the thread that asked.
    """

    def __init__(self, inner: Transport, on_answer: Callable[[], None]) -> None:
        self._inner = inner
        self._on_answer = on_answer

    def send(self, request: Request) -> Response:
        """See `Transport`."""
        response = self._inner.send(request)
        self._on_answer()
        return response


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
        text = "1 if the last reload could use what it read, or there was none, else 0."
        self._configuration_read = gauge("configuration_read", text, multiprocess_mode="livemin")
        self._configuration_read.set(1)

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

    def on_reload(self, *, succeeded: bool) -> None:
        """See `Calls`."""
        self._configuration_read.set(int(succeeded))


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


OPTION: Final = "[compute_scheduler]metrics_bind"
DIRECTORY_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"


def counted_calls(conf: cfg.ConfigOpts) -> Calls:
    """Return calls for a worker process, counted where metrics are configured."""
    if not conf.compute_scheduler.metrics_bind:
        return Calls()
    from prometheus_client import CollectorRegistry

    return CountedCalls(CollectorRegistry())


@contextmanager
def of_this_process(conf: cfg.ConfigOpts) -> Iterator[Calls]:
    """Show the metrics of this process where that is configured; yield the calls to count.

    :raises InvalidConfiguration: the address is malformed or taken.
    """
    bind = conf.compute_scheduler.metrics_bind
    if not bind:
        yield Calls()
        return
    registry = _registry(conf)
    calls = CountedCalls(registry)
    with _serve(bind, registry):
        yield calls


@contextmanager
def of_workers(
    conf: cfg.ConfigOpts,
) -> Iterator[tuple[Mapping[str, str], Callable[[int], None]]]:
    """Show the metrics of workers where that is configured.

    Yields variables of their environment, and what is to be called with the process id of each
    that has ended: it forgets what only the living have, such as calls in progress.

    :raises InvalidConfiguration: the address is malformed or taken.
    """
    bind = conf.compute_scheduler.metrics_bind
    if not bind:
        yield {}, lambda _pid: None
        return
    from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

    with tempfile.TemporaryDirectory(prefix="compute-scheduler-metrics-") as directory:
        registry = _registry(conf)
        MultiProcessCollector(registry, path=directory)  # type: ignore[no-untyped-call]
        with _serve(bind, registry):
            yield (
                {DIRECTORY_VARIABLE: directory},
                lambda pid: mark_process_dead(  # type: ignore[no-untyped-call]
                    pid, directory
                ),
            )


def _registry(conf: cfg.ConfigOpts) -> CollectorRegistry:
    from prometheus_client import CollectorRegistry

    registry = CollectorRegistry()
    registry.register(JournalCollector(Journal(conf.compute_scheduler.journal_path)))
    return registry


@contextmanager
def _serve(bind: str, registry: CollectorRegistry) -> Iterator[None]:
    server = MetricsServer(OPTION, bind, registry, InvalidConfiguration)
    server.start()
    try:
        yield
    finally:
        server.stop()
