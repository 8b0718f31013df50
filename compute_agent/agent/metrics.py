"""The status of the agent as Prometheus metrics.

Nothing is counted twice: the metrics are made from the status board when they are asked for.
This module is imported only by an agent that serves metrics.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final, TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
    SummaryMetricFamily,
)

from compute_agent import __version__
from compute_agent.daemon.message_bus import BusState
from compute_agent.programs.metrics_server import build_info
from compute_agent.tracker.status import FeedState, StatusBoard

PREFIX = "compute_agent"

_Family = TypeVar("_Family", bound=Metric)

_NODE_GAUGES: Final = {
    "providers": "Number of resource providers of the node.",
    "last_success_timestamp_seconds": "Time at which a pass last completed.",
    "reshape_pending": "1 if a reshape waits for a restart of the agent, else 0.",
    "in_trouble": "1 if the last pass of the node did not complete, else 0.",
    "enabled": "1 if new instances are allowed on the node, else 0.",
    "faulty_providers": "Number of providers of devices that are marked as broken.",
    "losses": "Providers and amounts that the node had and has not any more, since the start of "
    "the agent.",
}


class BoardCollector:
    """Turns the status board into metric families, as prometheus_client asks of a collector."""

    def __init__(self, board: StatusBoard) -> None:
        self._board = board

    def collect(self) -> Iterator[Metric]:
        """Yield the families."""
        yield build_info(PREFIX, __version__)
        yield from self._totals()
        yield from self._services()
        yield from self._hung_calls()
        yield from self._nodes()

    def _totals(self) -> Iterator[Metric]:
        counters = self._board.counters()
        passes = _counter("passes", "Passes, by outcome.", labels=["outcome"])
        for outcome, count in sorted(counters.passes.items()):
            passes.add_metric([outcome], count)
        yield passes
        yield _counter("pass_seconds", "Seconds spent in passes.", value=counters.pass_seconds)
        stages = SummaryMetricFamily(
            f"{PREFIX}_pass_stage_seconds",
            "Seconds spent in a stage of passes: discover (the machine), read (placement), layout, "
            "plan or flush.",
            labels=["stage"],
        )
        for stage, times in sorted(counters.stages.items()):
            stages.add_metric([stage], times, counters.stage_seconds[stage])
        yield stages
        yield _counter("conflicts", "Conflicts with other writers.", value=counters.retries)
        yield _counter("retries", "Passes that were repeated.", value=counters.retries)
        yield _counter(
            "undecided_claims",
            "Claims that were refused since their fit was not decided within the limit of steps.",
            value=counters.undecided_claims,
        )
        text = "Requests to placement, by method and status."
        requests = _counter("placement_requests", text, labels=["method", "status"])
        for (method, status), count in sorted(counters.requests.items()):
            requests.add_metric([method, status], count)
        yield requests

    def _services(self) -> Iterator[Metric]:
        board = self._board
        text = "1 if placement answers, else 0."
        yield _gauge("placement_up", text, value=int(board.placement.up is True))
        text = "1 if the nodes of this host were found when they were last searched for, else 0."
        yield _gauge("nodes_found", text, value=int(board.search_trouble is None))
        text = "1 if the last write to the state directory succeeded, else 0."
        yield _gauge("state_written", text, value=int(board.state_trouble is None))
        text = "1 if the last reload read all configuration files, or there was none, else 0."
        yield _gauge("configuration_read", text, value=int(board.reload_trouble is None))
        if (offset := board.placement.clock_offset) is not None:
            text = "Seconds by which the clock is ahead of placement's, by the Date of its answers."
            yield _gauge("clock_offset_seconds", text, value=offset)
        if board.bus.state not in (BusState.OFF, BusState.WAITING):
            text = "1 if the message bus takes what the agent announces, else 0."
            yield _gauge("bus_up", text, value=int(board.bus.state is BusState.UP))
        feed = board.feed
        if feed.state is not FeedState.OFF:
            yield _gauge(
                "changes_followed",
                "1 if the agent follows changes in placement, 0 if only periodic passes find them.",
                value=int(feed.state is FeedState.FOLLOWING),
            )
            text = "Changes of this host in placement that were received."
            yield _counter("changes", text, value=feed.changes)

    def _hung_calls(self) -> Iterator[Metric]:
        calls = self._board.hung_calls()
        text = "Calls to the hypervisor or the machine that have not returned."
        yield _gauge("hung_calls", text, value=len(calls))
        text = "Time at which a call began that has not returned."
        since = _gauge("hung_call_start_timestamp_seconds", text, labels=["source", "call"])
        for call in calls:
            since.add_metric([call.source, call.call], call.since)
        yield since

    def _nodes(self) -> Iterator[Metric]:
        families = {
            name: _gauge(f"node_{name}", text, labels=["node"])
            for name, text in _NODE_GAUGES.items()
        }
        text = "Consumers whose allocations and instance do not match, by kind."
        drift = _gauge("node_drift", text, labels=["node", "kind"])
        capacity = _gauge(
            "node_inventory_capacity",
            "Amount that the node reports as allocatable: total minus reserved, times the "
            "allocation ratio.",
            labels=["node", "resource_class"],
        )
        text = "Amount that the node reports as reserved."
        reserved = _gauge("node_inventory_reserved", text, labels=["node", "resource_class"])
        for node in self._board.nodes():
            values = {
                "providers": node.last_pass.providers if node.last_pass else 0,
                "last_success_timestamp_seconds": node.last_success or 0,
                "reshape_pending": int(node.reshape_pending),
                "in_trouble": int(node.trouble is not None),
                "enabled": int(node.enabled),
                "faulty_providers": len(node.faulty),
                "losses": len(self._board.history.losses(node.name)),
            }
            for name, value in values.items():
                families[name].add_metric([node.name], value)
            for kind, consumers in sorted(node.drift.items()):
                drift.add_metric([node.name, kind], len(consumers))
            for resource_class, inventory in node.inventories.items():
                capacity.add_metric([node.name, resource_class], inventory.capacity)
                reserved.add_metric([node.name, resource_class], inventory.reserved)
        yield from (*families.values(), drift, capacity, reserved)


def _family(kind: type[_Family], name: str, text: str, **options: Any) -> _Family:
    return kind(f"{PREFIX}_{name}", text, **options)


_counter = partial(_family, CounterMetricFamily)
_gauge = partial(_family, GaugeMetricFamily)


def registry(board: StatusBoard) -> CollectorRegistry:
    """Return the registry of an agent's metrics."""
    metrics = CollectorRegistry()
    metrics.register(BoardCollector(board))
    return metrics
