"""What two hosts have in placement that is not the same."""

from __future__ import annotations

import uuid as uuidlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from compute_agent import errors

if TYPE_CHECKING:
    from compute_agent.provider_tree import ProviderTree
    from compute_agent.provider_tree.provider import ProviderData
    from compute_agent.report.client import ReportClient

PROVIDER = "provider"
ABSENT = "absent"
PRESENT = "present"


@dataclass(frozen=True, slots=True)
class HostTree:
    """The tree of one host: its root, and its providers by what their names have beyond its own."""

    name: str
    uuid: str
    providers: Mapping[str, ProviderData]


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that differs.

    :ivar provider: what the provider's name has beyond the host's; empty for the root.
    :ivar aspect: ``provider``, ``traits``, ``aggregates``, or a resource class and field of it.
    :ivar first: what the first host has there, as plain JSON types; likewise `second`.
    """

    provider: str
    aspect: str
    first: Any
    second: Any


def read_host(report: ReportClient, named: str) -> HostTree:
    """The tree of the host of a name, or of a root provider's uuid.

    :raises ComputeHostNotFound: placement has no such host.
    """
    found = report.find_provider_by_name(named)
    if found is None and (uuid := _uuid(named)) is not None:
        found = report.find_provider(uuid)
    if found is None:
        raise errors.ComputeHostNotFound(
            f"Placement has no resource provider named {named!r}. Name a host as its root provider "
            "is named; `openstack resource provider list` shows the names."
        )
    if found.parent_uuid is not None:
        raise errors.ComputeHostNotFound(
            f"The resource provider {named!r} is not a host: it has the parent "
            f"{found.parent_uuid}. Name the host at the root of its tree."
        )
    return tree_of_host(report.get_provider_tree(found.uuid), found.uuid)


def tree_of_host(tree: ProviderTree, root: str) -> HostTree:
    """One host's part of a tree, without what is shared with it."""
    name = tree.data(root).name
    members = [tree.data(uuid) for uuid in tree.get_provider_uuids(root)]
    return HostTree(name, root, {_relative(each.name, name): each for each in members})


def differences(first: HostTree, second: HostTree) -> list[Difference]:
    """Everything that differs, by provider.

    Providers are the same where their names are, but for the hosts' own. What is used, generations
    and uuids differ between any two hosts and are not looked at.
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
) -> Iterator[Difference]:
    if first is None or second is None:
        there = [ABSENT if one is None else PRESENT for one in (first, second)]
        yield Difference(provider, PROVIDER, *there)
        return
    for resource_class in sorted({*first.inventory, *second.inventory}):
        yield from _of_class(
            provider,
            resource_class,
            first.inventory.get(resource_class),
            second.inventory.get(resource_class),
        )
    for aspect, one, other in (
        ("traits", first.traits, second.traits),
        ("aggregates", first.aggregates, second.aggregates),
    ):
        if one != other:
            yield Difference(provider, aspect, sorted(one - other), sorted(other - one))


def _of_class(
    provider: str,
    resource_class: str,
    first: Mapping[str, Any] | None,
    second: Mapping[str, Any] | None,
) -> Iterator[Difference]:
    if first is None or second is None:
        totals = [None if one is None else one["total"] for one in (first, second)]
        yield Difference(provider, f"{resource_class} total", *totals)
        return
    for field in first:
        if first[field] != second[field]:
            yield Difference(provider, f"{resource_class} {field}", first[field], second[field])


def _relative(name: str, root: str) -> str:
    return name.removeprefix(root)


def _uuid(text: str) -> str | None:
    """The canonical form of a uuid; None, since a host may have any name, for other text."""
    try:
        return str(uuidlib.UUID(text))
    except ValueError:
        return None
