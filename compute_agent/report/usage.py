"""Use of providers, by class and by consumer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from compute_agent.report.client import ReportClient

if TYPE_CHECKING:
    pass


def usage_of(report: ReportClient, provider_uuid: str) -> Mapping[str, int]:
    """Return the amounts that consumers hold of a provider, by class."""
    used: Counter[str] = Counter()
    for resources in holders_of(report, provider_uuid).values():
        used.update(resources)
    return used


def holders_of(report: ReportClient, provider_uuid: str) -> Mapping[str, Mapping[str, int]]:
    """Return the amounts that each consumer holds of a provider, by class."""
    holders = report.get_allocations_for_provider(provider_uuid)
    return {consumer: record["resources"] for consumer, record in holders.items()}
