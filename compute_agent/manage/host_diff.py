"""Differences between two hosts in placement."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from compute_agent.manage.hosts import host_tree

if TYPE_CHECKING:
    from compute_agent.provider_tree import ProviderTree
    from compute_agent.provider_tree.provider import ProviderData
    from compute_agent.report.client import ReportClient

PROVIDER = "provider"
ABSENT = "absent"
PRESENT = "present"


@dataclass(frozen=True, slots=True)
class HostTree:
    """The tree of one host: its root, and its providers by their names after the host's."""

    name: str
    uuid: str
    providers: Mapping[str, ProviderData]


@dataclass(frozen=True, slots=True)
class HostDifference:
    """One thing that differs.

    :ivar provider: the provider's name after the host's; empty for the root.
    :ivar aspect: `provider`, `traits`, `aggregates`, or a resource class and field of it.
    :ivar first: the value of the first host, as plain JSON types; likewise `second`.
    """

    provider: str
    aspect: str
    first: Any
    second: Any


def read_host(report: ReportClient, name_or_uuid: str) -> HostTree:
    """Read the tree of a host, by its name or its root provider's uuid.

    :raises CommandRefused: placement has no such host.
    """
    root, tree = host_tree(report, name_or_uuid)
    return tree_of_host(tree, root)


def tree_of_host(tree: ProviderTree, root: str) -> HostTree:
    """Return one host's part of a tree, without sharing providers."""
    name = tree.data(root).name
    members = [tree.data(uuid) for uuid in tree.get_provider_uuids(root)]
    return HostTree(name, root, {_relative(member.name, name): member for member in members})


def differences(first: HostTree, second: HostTree) -> list[HostDifference]:
    """Return all differences, by provider.

    Providers correspond when their names after the hosts' do. Usage, generations and uuids differ
    between any two hosts and are not compared.
    """
    return [
        difference
        for provider in sorted({*first.providers, *second.providers})
        for difference in _of_provider(
            provider, first.providers.get(provider), second.providers.get(provider)
        )
    ]


def _of_provider(
    provider: str, first: ProviderData | None, second: ProviderData | None
) -> Iterator[HostDifference]:
    if first is None or second is None:
        there = [ABSENT if data is None else PRESENT for data in (first, second)]
        yield HostDifference(provider, PROVIDER, *there)
        return
    for resource_class in sorted({*first.inventory, *second.inventory}):
        yield from _of_class(
            provider,
            resource_class,
            first.inventory.get(resource_class),
            second.inventory.get(resource_class),
        )
    for aspect, ours, theirs in (
        ("traits", first.traits, second.traits),
        ("aggregates", first.aggregates, second.aggregates),
    ):
        if ours != theirs:
            yield HostDifference(provider, aspect, sorted(ours - theirs), sorted(theirs - ours))


def _of_class(
    provider: str,
    resource_class: str,
    first: Mapping[str, Any] | None,
    second: Mapping[str, Any] | None,
) -> Iterator[HostDifference]:
    if first is None or second is None:
        totals = [None if record is None else record["total"] for record in (first, second)]
        yield HostDifference(provider, f"{resource_class} total", *totals)
        return
    for field in first:
        if first[field] != second[field]:
            yield HostDifference(provider, f"{resource_class} {field}", first[field], second[field])


def _relative(name: str, root: str) -> str:
    return name.removeprefix(root)
