"""The commands about a running scheduler: `top`, its work, live, and `status`."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping

import requests

from compute_agent.bounded_http.session import BoundedSession
from compute_agent.cmd import program
from compute_agent.cmd.output import show
from compute_agent.cmd.scheduler.views import status_lines
from compute_agent.cmd.screen import Screen
from compute_agent.errors import InvalidConfiguration
from compute_agent.scheduler.bus import running_scheduler
from compute_agent.scheduler.errors import NoSchedulerAnswers
from compute_agent.scheduler.service.readings import (
    NotMetrics,
    ServiceReading,
    per_second,
    quantile,
    reading_of,
)

TIMEOUT = 5.0
SHOWN_FILTERS = 8
_PARTS = (0.5, 0.95, 0.99)


def top(namespace: argparse.Namespace) -> None:
    """Show the work of a scheduler until it is left."""
    url = namespace.url or _configured_url(namespace)
    before = _read(url)
    shown_count = 0
    with Screen() as screen:
        while not screen.is_left(namespace.interval):
            reading = _read(url)
            screen.show(list(picture(before, reading, url)))
            before, shown_count = reading, shown_count + 1
            if namespace.count and shown_count >= namespace.count:
                break


def status(namespace: argparse.Namespace) -> None:
    """Print what agents of older versions still prevent, and a reload that failed."""
    document = running_scheduler.upgrade_status(program.configuration(namespace))
    show(namespace, document, *status_lines(document))


def _configured_url(namespace: argparse.Namespace) -> str:
    bind = program.configuration(namespace).compute_scheduler.metrics_bind
    if not bind:
        raise InvalidConfiguration(
            "[compute_scheduler]metrics_bind is not set, so the scheduler of this host shows no "
            "metrics. Set it, or give --url of another one."
        )
    return f"http://{bind}/metrics"


def _read(url: str) -> ServiceReading:
    try:
        with BoundedSession() as session:
            answer = session.get(url, timeout=TIMEOUT)
            answer.raise_for_status()
            return reading_of(answer.text, time.monotonic())
    except requests.RequestException as error:
        raise NoSchedulerAnswers(
            f"The metrics at {url} cannot be read: {error}. Check that compute-scheduler serve "
            "runs there with [compute_scheduler]metrics_bind."
        ) from error
    except NotMetrics as error:
        raise NoSchedulerAnswers(
            f"What {url} shows is not the metrics of a scheduler: {error}. Give --url the address "
            "in [compute_scheduler]metrics_bind, with /metrics."
        ) from error


def picture(before: ServiceReading, after: ServiceReading, url: str) -> Iterator[str]:
    """Yield the lines that show what happened between two readings."""
    seconds = after.at - before.at
    state = _state(after.value("placement_up"), "answers", "does not answer")
    bus = _state(after.value("bus_up"), "up", "takes no messages")
    yield f"compute-scheduler top  {url}  last {seconds:.1f} s  placement {state}  bus {bus}"
    waiting_entries = f"{after.value('journal_entries') or 0:.0f}"
    journal = _state(after.value("journal_usable"), waiting_entries, "cannot be used, see the log")
    options = _state(after.value("configuration_read"), "read", "not reloaded, see the log")
    yield (
        f"in progress {after.value('requests_in_progress') or 0:.0f}  journal {journal}"
        f"  options {options}"
        f"  oldest announcement {after.value('oldest_announcement_age_seconds') or 0:.0f} s"
    )
    parts = {part: quantile(before, after, "request_duration_seconds", part) for part in _PARTS}
    latencies = [f"p{part * 100:.0f} {_milliseconds(value)}" for part, value in parts.items()]
    yield "latency      " + "  ".join(latencies)
    for title, name, label in (
        ("claims/s", "claims_total", "outcome"),
        ("requests/s", "requests_total", "result"),
        ("methods/s", "requests_total", "method"),
        ("moves/s", "moves_total", "state"),
    ):
        yield f"{title:<13}" + _rates(per_second(before, after, name, label))
    retries = per_second(before, after, "claim_retries_total", "")
    yield f"{'retries/s':<13}{sum(retries.values()):.1f}"
    rejection_rates = per_second(before, after, "filter_rejected_hosts_total", "filter")
    yield "hosts rejected/s"
    for filter_name, rate in sorted(rejection_rates.items(), key=lambda item: -item[1])[
        :SHOWN_FILTERS
    ]:
        yield f"  {filter_name:<34}{rate:10.1f}"


def _state(value: float | None, good: str, bad: str) -> str:
    return "unknown" if value is None else good if value else bad


def _rates(rates: Mapping[str, float]) -> str:
    return "  ".join(f"{key} {rate:.1f}" for key, rate in sorted(rates.items())) or "none yet"


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.0f} ms"
