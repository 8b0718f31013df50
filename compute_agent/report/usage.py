"""Use of providers, by class and by consumer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from compute_agent.placement.allocations.amounts import of_record
from compute_agent.report.client import ReportClient


def usage_of(report: ReportClient, provider_uuid: str) -> Mapping[str, int]:
    """Return the amounts that consumers hold of a provider, by class."""
    used: Counter[str] = Counter()
    for resources in holders_of(report, provider_uuid).values():
        used.update(resources)
    return used


def holders_in_tree(report: ReportClient, root_uuid: str) -> dict[str, dict[str, dict[str, int]]]:
    """Return the amounts that each consumer holds of each provider with inventory of a tree.

    One request where placement shows a tree with its consumers, else one for each provider.
    """
    tree = report.get_provider_tree(root_uuid, fresh=report.placement.trees.is_offered)
    members = tree.get_provider_uuids(root_uuid) if tree.exists(root_uuid) else []
    holders: dict[str, dict[str, dict[str, int]]] = {
        uuid: {} for uuid in members if tree.has_inventory(uuid)
    }
    allocations = report.allocations_with_tree(root_uuid)
    if allocations is None:
        return {uuid: dict(holders_of(report, uuid)) for uuid in holders}
    for consumer, record in allocations.items():
        for uuid, resources in of_record(record).items():
            if uuid in members:
                holders.setdefault(uuid, {})[consumer] = dict(resources)
    return holders


def holders_of(report: ReportClient, provider_uuid: str) -> dict[str, dict[str, int]]:
    """Return the amounts that each consumer holds of a provider, by class."""
    holders = report.get_allocations_for_provider(provider_uuid)
    return {consumer: record["resources"] for consumer, record in holders.items()}
