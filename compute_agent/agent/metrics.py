"""The status of the agent as Prometheus metrics.

Nothing is counted twice: the metrics are made from the status board when they are asked for.
prometheus_client is imported only by an agent that serves metrics.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from compute_agent import __version__
from compute_agent.daemon.bus_state import BusState
from compute_agent.programs.metrics_server import build_info
from compute_agent.tracker.status import FeedState

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

    from compute_agent.tracker.status import StatusBoard

PREFIX = "compute_agent"


class BoardCollector:
    """Turns the status board into metric families, as prometheus_client asks of a collector."""

    def __init__(self, board: StatusBoard) -> None:
        self._board = board

    def collect(self) -> Iterator[Metric]:
        """Yield the families."""
        yield build_info(PREFIX, __version__)
        yield from self._passes()
        yield from self._claims()
        yield from self._placement()
        yield from self._hung_calls()
        yield from self._nodes()

    def _passes(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, SummaryMetricFamily

        counters = self._board.counters()
        passes = CounterMetricFamily(f"{PREFIX}_passes", "Passes, by outcome.", labels=["outcome"])
        for outcome, count in sorted(counters.passes.items()):
            passes.add_metric([outcome], count)
        yield passes
        yield CounterMetricFamily(
            f"{PREFIX}_pass_seconds", "Seconds spent in passes.", value=counters.pass_seconds
        )
        stages = SummaryMetricFamily(
            f"{PREFIX}_pass_stage_seconds",
            "Seconds spent in a stage of passes: discover (the machine), read (placement), layout, "
            "plan or flush.",
            labels=["stage"],
        )
        for stage, times in sorted(counters.stages.items()):
            stages.add_metric([stage], times, counters.stage_seconds[stage])
        yield stages
        yield CounterMetricFamily(
            f"{PREFIX}_conflicts", "Conflicts with other writers.", value=counters.conflicts
        )
        yield CounterMetricFamily(
            f"{PREFIX}_retries", "Passes that were repeated.", value=counters.retries
        )

    def _claims(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily

        yield CounterMetricFamily(
            f"{PREFIX}_undecided_claims",
            "Claims that were refused since their fit was not decided within the limit of steps.",
            value=self._board.counters().undecided_claims,
        )

    def _placement(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        requests = CounterMetricFamily(
            f"{PREFIX}_placement_requests",
            "Requests to placement, by method and status.",
            labels=["method", "status"],
        )
        for (method, status), count in sorted(self._board.counters().requests.items()):
            requests.add_metric([method, status], count)
        yield requests
        yield GaugeMetricFamily(
            f"{PREFIX}_placement_up",
            "1 if placement answers, else 0.",
            value=int(self._board.placement.up is True),
        )
        yield GaugeMetricFamily(
            f"{PREFIX}_state_written",
            "1 if the last write to the state directory succeeded, else 0.",
            value=int(self._board.state_trouble is None),
        )
        offset = self._board.placement.clock_offset
        if offset is not None:
            yield GaugeMetricFamily(
                f"{PREFIX}_clock_offset_seconds",
                "Seconds by which the clock is ahead of placement's, by the Date of its answers.",
                value=offset,
            )
        bus = self._board.bus
        if bus.state not in (BusState.OFF, BusState.WAITING):
            yield GaugeMetricFamily(
                f"{PREFIX}_bus_up",
                "1 if the message bus takes what the agent announces, else 0.",
                value=int(bus.state is BusState.UP),
            )
        feed = self._board.feed
        if feed.state is not FeedState.OFF:
            yield GaugeMetricFamily(
                f"{PREFIX}_changes_followed",
                "1 if the agent follows changes in placement, 0 if only periodic passes find them.",
                value=int(feed.state is FeedState.FOLLOWING),
            )
            yield CounterMetricFamily(
                f"{PREFIX}_changes",
                "Changes of this host in placement that were received.",
                value=feed.changes,
            )

    def _hung_calls(self) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        calls = self._board.hung_calls()
        yield GaugeMetricFamily(
            f"{PREFIX}_hung_calls",
            "Calls to the hypervisor or the machine that have not returned.",
            value=len(calls),
        )
        since = GaugeMetricFamily(
            f"{PREFIX}_hung_call_start_timestamp_seconds",
            "Time at which a call began that has not returned.",
            labels=["source", "call"],
        )
        for call in calls:
            since.add_metric([call.source, call.call], call.since)
        yield since

    def _nodes(self) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        texts = {
            "node_providers": "Number of resource providers of the node.",
            "node_last_success_timestamp_seconds": "Time at which a pass last completed.",
            "node_reshape_pending": "1 if a reshape waits for a restart of the agent, else 0.",
            "node_in_trouble": "1 if the last pass of the node did not complete, else 0.",
            "node_enabled": "1 if new instances are allowed on the node, else 0.",
            "node_faulty_providers": "Number of providers of devices that are marked as broken.",
            "node_losses": "Providers and amounts that the node had and has not any more, since "
            "the start of the agent.",
        }
        families = {
            name: GaugeMetricFamily(f"{PREFIX}_{name}", text, labels=["node"])
            for name, text in texts.items()
        }
        drift = GaugeMetricFamily(
            f"{PREFIX}_node_drift",
            "Consumers whose allocations and instance do not match, by kind.",
            labels=["node", "kind"],
        )
        capacity = GaugeMetricFamily(
            f"{PREFIX}_node_inventory_capacity",
            "Amount that the node reports as allocatable: total minus reserved, times the "
            "allocation ratio.",
            labels=["node", "resource_class"],
        )
        reserved = GaugeMetricFamily(
            f"{PREFIX}_node_inventory_reserved",
            "Amount that the node reports as reserved.",
            labels=["node", "resource_class"],
        )
        nodes = self._board.nodes()
        if not nodes and self._board.search_trouble:
            # the name that its node has as a rule, so that the alert finds it
            families["node_in_trouble"].add_metric([self._board.host], 1)
        for node in nodes:
            values = {
                "node_providers": node.last_pass.providers if node.last_pass else 0,
                "node_last_success_timestamp_seconds": node.last_success or 0,
                "node_reshape_pending": int(node.reshape_pending),
                "node_in_trouble": int(node.trouble is not None),
                "node_enabled": int(node.enabled),
                "node_faulty_providers": len(node.faulty),
                "node_losses": len(self._board.history.losses(node.name)),
            }
            for name, value in values.items():
                families[name].add_metric([node.name], value)
            for kind, consumers in sorted(node.drift.items()):
                drift.add_metric([node.name, kind], len(consumers))
            for resource_class, inventory in node.inventories.items():
                capacity.add_metric([node.name, resource_class], inventory.capacity)
                reserved.add_metric([node.name, resource_class], inventory.reserved)
        yield from (*families.values(), drift, capacity, reserved)


def registry(board: StatusBoard) -> CollectorRegistry:
    """Return the registry of an agent's metrics."""
    from prometheus_client import CollectorRegistry

    metrics = CollectorRegistry()
    metrics.register(BoardCollector(board))
    return metrics
