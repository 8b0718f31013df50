"""placement-manage audit: checks and repairs of the data, once or every so often for Prometheus."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry, Gauge, start_http_server

from compute_agent.programs import whole_numbers
from compute_agent.programs.exit_status import Exit
from placement_server.conf import InvalidConfiguration
from placement_server.store import audit
from placement_server.store.audit import Violation
from placement_server.store.errors import StoreError
from placement_server.store.store import Store

DEFAULT_BIND: Final = "127.0.0.1:9103"


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
    _serve(bind, registry)
    if wait is None:
        ended = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: ended.set())
        wait = ended.wait
    known: set[str] = set()
    problems: list[Violation] = []
    while True:
        try:
            problems = store.read(audit.audit)
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


def _serve(bind: str, registry: CollectorRegistry) -> None:
    address, _, text = bind.rpartition(":")
    port = whole_numbers.whole_number(text, 65535)
    if not address or port is None:
        raise InvalidConfiguration(
            f"--metrics-bind is {bind!r}, expected ADDRESS:PORT such as {DEFAULT_BIND}."
        )
    try:
        start_http_server(port, addr=address.strip("[]"), registry=registry)
    except OSError as error:
        raise InvalidConfiguration(
            f"Metrics cannot be served on {bind}: {error}. Change --metrics-bind or end what uses "
            "that port."
        ) from error
