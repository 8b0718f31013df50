"""placement-manage audit: checks and repairs of the data, once or every so often for Prometheus."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from oslo_config import cfg
from prometheus_client import CollectorRegistry, Gauge

from compute_agent.programs.exit_status import Exit
from compute_agent.programs.metrics_server import MetricsServer
from placement_server.cmd.database import open_store
from placement_server.conf import InvalidConfiguration
from placement_server.store import audit
from placement_server.store.audit import Violation
from placement_server.store.changes.snapshot import newest_change_ids
from placement_server.store.errors import StoreError
from placement_server.store.store import Store

_ANYWAY_SECONDS: Final = 60
"""The data is checked after these although no request changed it: others than servers may have."""


def run(conf: cfg.ConfigOpts) -> int:
    command = conf.command
    with open_store(conf) as store:
        if command.watch is not None:
            return watch(store, command.watch, command.metrics_bind)
        return check(store, repair=command.repair)


def check(store: Store, *, repair: bool) -> int:
    """Print what is wrong, and repair it where asked to; return the exit status."""
    problems = store.read(audit.audit)
    for problem in problems:
        print(problem)
    for line in store.read(audit.over_capacity):
        print(f"note: over capacity: {line} (legal: an inventory may shrink below its use)")
    if repair and any(problem.mendable for problem in problems):
        store.write(audit.repair)
        before, problems = problems, store.read(audit.audit)
        print(f"Repaired {len(before) - len(problems)} of {len(before)} problem(s).")
    return _conclude(problems)


def _conclude(problems: list[Violation]) -> int:
    if not problems:
        print("Nothing is wrong.")
        return Exit.FINE
    if all(problem.mendable for problem in problems):
        print(f"{len(problems)} problem(s); run again with --repair to repair them.")
        return Exit.WOULD_CHANGE
    people = sum(not problem.mendable for problem in problems)
    print(f"{len(problems)} problems, {people} of which need a decision.")
    return Exit.UNFINISHED


def watch(
    store: Store, interval: int, bind: str, wait: Callable[[float], bool] | None = None
) -> int:
    """Check every so many seconds until SIGTERM or SIGINT, and serve what is wrong as metrics.

    A problem is printed when it is seen first. A database that is away is tried again the next
    time.

    :param wait: returns whether to end, after so many seconds.
    :returns: the exit status of the last check.
    :raises InvalidConfiguration: the metrics cannot be served there.
    """
    registry = CollectorRegistry()
    violations, last = gauges(registry)
    MetricsServer("--metrics-bind", bind, registry, InvalidConfiguration).start()
    if wait is None:
        ended = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: ended.set())
        wait = ended.wait
    known: set[str] = set()
    problems: list[Violation] = []
    checked_ids: list[int] | None = None
    unchecked_seconds = 0
    while True:
        try:
            newest_ids = store.read(newest_change_ids, 1)
            if newest_ids != checked_ids or unchecked_seconds >= _ANYWAY_SECONDS:
                problems = store.read(audit.audit)
                checked_ids, unchecked_seconds = newest_ids, 0
        except StoreError as error:
            print(f"not checked: {error}", flush=True)
        else:
            counts = Counter(problem.check for problem in problems)
            for kind in audit.KINDS:
                violations.labels(kind).set(counts[kind])
            last.set(time.time())
            for text in (texts := {str(problem) for problem in problems}) - known:
                print(text, flush=True)
            known = texts
        if wait(interval):
            return _conclude(problems)
        unchecked_seconds += interval


def gauges(registry: CollectorRegistry) -> tuple[Gauge, Gauge]:
    """Return the gauges of violations by kind, and of the time of the last check."""
    return (
        Gauge(
            "placement_audit_violations",
            "Violations of the invariants of the data, by kind.",
            ["kind"],
            registry=registry,
        ),
        Gauge(
            "placement_audit_last_success_timestamp_seconds",
            "When the data was checked last.",
            registry=registry,
        ),
    )
