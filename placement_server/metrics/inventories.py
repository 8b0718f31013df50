"""Metrics of what the fleet has, read from the database at each scrape.

All providers of a host count, nested ones too. Whichever worker answers the scrape reads them, so
nothing is counted twice.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from compute_agent.programs.metrics_server import build_info
from placement_server import __version__
from placement_server.store import agent_reports
from placement_server.store.errors import StoreError
from placement_server.store.providers import inventory_sums
from placement_server.store.providers.inventory_sums import InventorySum
from placement_server.store.store import Store

LOG = logging.getLogger(__name__)

_AMOUNTS: Final = {
    "capacity": "Amount that can be allocated: total minus reserved, times the allocation ratio.",
    "reserved": "Amount that is reserved and cannot be allocated.",
    "used": "Amount that is allocated.",
    "free": "Amount that is free; 0 if more is used than the capacity.",
}


class InventoryCollector(Collector):
    """Collects capacity, reserved, used and free amounts by resource class.

    :param by_host: collect them by host, too.
    :param zones: aggregates by which to collect them, too: their uuids, by the names to show.
    """

    def __init__(self, store: Store, *, by_host: bool, zones: Mapping[str, str]) -> None:
        self._store = store
        self._by_host = by_host
        self._zones = {name: uuid.lower() for name, uuid in zones.items()}

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics; only that they could not be read where that is so."""
        failure_gauge = GaugeMetricFamily(
            "placement_inventory_read_failed",
            "1 if the inventories could not be read for this scrape, else 0.",
        )
        try:
            metrics = self._read()
        except StoreError as error:
            LOG.warning("Metrics of inventories are left out of this scrape: %s", error)
            failure_gauge.add_metric((), 1)
            return [build_info("placement", __version__), failure_gauge]
        failure_gauge.add_metric((), 0)
        return [build_info("placement", __version__), *metrics, failure_gauge]

    def _read(self) -> list[Metric]:
        sums = self._store.read_single(inventory_sums.of_fleet)
        metrics: list[Metric] = _families("placement_inventory", ("resource_class",), sums)
        metrics.append(self._agents())
        if self._by_host:
            sums = self._store.read_single(inventory_sums.by_host)
            metrics += _families("placement_host_inventory", ("resource_class", "host"), sums)
        if self._zones:
            sums = self._store.read_single(inventory_sums.by_aggregate, set(self._zones.values()))
            zone_sums = [
                inventory_sum._replace(part=name)
                for name, uuid in self._zones.items()
                for inventory_sum in sums
                if inventory_sum.part == uuid
            ]
            metrics += _families("placement_zone_inventory", ("resource_class", "zone"), zone_sums)
        return metrics

    def _agents(self) -> Metric:
        family = GaugeMetricFamily(
            "placement_agents",
            "Agents that have reported themselves, by whether they still do.",
            labels=("state",),
        )
        now = datetime.now(UTC).replace(tzinfo=None)
        reporting, silent = self._store.read_single(agent_reports.counts, now)
        family.add_metric(("reporting",), reporting)
        family.add_metric(("silent",), silent)
        return family


def _families(prefix: str, labels: Sequence[str], sums: Sequence[InventorySum]) -> list[Metric]:
    families: list[Metric] = []
    for name, help_text in _AMOUNTS.items():
        family = GaugeMetricFamily(f"{prefix}_{name}", help_text, labels=labels)
        for inventory_sum in sums:
            values = [inventory_sum.resource_class, inventory_sum.part][: len(labels)]
            family.add_metric(values, getattr(inventory_sum, name))
        families.append(family)
    return families
