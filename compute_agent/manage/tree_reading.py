"""Provider trees of placement with their usage, as they are displayed."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from compute_agent import errors
from compute_agent.placement import responses
from compute_agent.placement.answers import Usages
from compute_agent.placement.connection import Connection
from compute_agent.placement.provider_trees import Part, ProviderTrees, UnchangedTree, WholeTree
from compute_agent.placement.providers import Providers
from compute_agent.placement.transports.transport import Request
from compute_agent.programs.decoding import Whole
from compute_agent.programs.printable import first_of
from compute_agent.provider_tree.trait_names import CUSTOM_DEVICE_MISSING

LOG = logging.getLogger(__name__)

_NAMED: Final = 2
"""So many consumers of a device that is gone are named."""


class InventoryLine(Struct, frozen=True):
    """One inventory and its usage."""

    total: int
    reserved: int
    allocation_ratio: float
    used: int

    @property
    def capacity(self) -> int:
        """The amount that allocations may take in all; 0 where more is reserved than there is."""
        return max(0, int((self.total - self.reserved) * self.allocation_ratio))

    @property
    def free(self) -> int:
        """The amount that can still be allocated; negative where too much is."""
        return self.capacity - self.used


class ProviderLines(Struct, frozen=True):
    """One provider with everything that is displayed.

    :ivar holders: consumers of a device that is gone.
    :ivar note: text beside its uuid.
    """

    uuid: str
    name: str
    parent: str | None
    inventories: Mapping[str, InventoryLine] = {}
    traits: tuple[str, ...] = ()
    aggregates: tuple[str, ...] = ()
    holders: tuple[str, ...] = ()
    note: str = ""

    @property
    def named_holders(self) -> str:
        """A few of the holders, and how many more there are."""
        return first_of(self.holders, _NAMED)


def inventory_lines(
    records: Mapping[str, Mapping[str, Any]], used: Mapping[str, int]
) -> dict[str, InventoryLine]:
    """Return the inventories of one provider, with what is used of each."""
    return {
        resource_class: InventoryLine(
            total=int(record["total"]),
            reserved=int(record["reserved"]),
            allocation_ratio=record["allocation_ratio"],
            used=used.get(resource_class, 0),
        )
        for resource_class, record in records.items()
    }


def used_and_capacity(providers: Iterable[ProviderLines]) -> dict[str, tuple[int, int]]:
    """Return used amount and capacity by resource class, summed over some providers."""
    sums: dict[str, tuple[int, int]] = {}
    for provider in providers:
        for name, line in provider.inventories.items():
            used, capacity = sums.get(name, (0, 0))
            sums[name] = used + line.used, capacity + line.capacity
    return dict(sorted(sums.items()))


def read_tree(connection: Connection, root: str) -> tuple[ProviderLines, ...]:
    """Return the providers of a tree, the root first, the others by name; none if it is gone.

    In one request, of one moment, where placement has whole trees.

    :raises PlacementError: placement cannot be asked.
    """
    trees = ProviderTrees(connection)
    if trees.is_offered:
        try:
            read_lines = _lines_of(trees.read(root, include=[Part.USAGES]))
            return tuple(_with_holders(connection, line) for line in read_lines)
        except errors.PlacementTooOld as error:
            LOG.info("Placement no longer offers whole trees; reading each provider. %s", error)
    providers = Providers(connection)
    lines = []
    for provider in providers.in_tree(root):
        uuid, name = provider["uuid"], provider["name"]
        used = _usages(connection, uuid, name)
        lines.append(
            ProviderLines(
                uuid,
                name,
                provider["parent_provider_uuid"],
                inventory_lines(providers.inventories(uuid, name).content, used),
                tuple(sorted(providers.traits(uuid, name).content)),
            )
        )
    return tuple(_with_holders(connection, line) for line in _root_first(lines))


def _with_holders(connection: Connection, line: ProviderLines) -> ProviderLines:
    if CUSTOM_DEVICE_MISSING not in line.traits:
        return line
    holders = Providers(connection).allocations(line.uuid, line.name)
    return replace(line, holders=tuple(sorted(holders)))


def existing_tree(connection: Connection, root: str) -> tuple[ProviderLines, ...]:
    """Return a tree as `read_tree` does, at least its root.

    :raises ResourceProviderNotFound: it is gone.
    """
    providers = read_tree(connection, root)
    if not providers:
        raise errors.ResourceProviderNotFound(f"Placement has no resource provider {root} any more")
    return providers


def _lines_of(tree: WholeTree | UnchangedTree | None) -> tuple[ProviderLines, ...]:
    if not isinstance(tree, WholeTree):
        return ()
    lines = [
        ProviderLines(
            provider["uuid"],
            provider["name"],
            provider["parent_provider_uuid"],
            inventory_lines(provider["inventories"], provider["usages"]),
            tuple(sorted(provider["traits"])),
            tuple(provider["aggregates"]),
        )
        for provider in tree.providers
    ]
    return _root_first(lines)


def _root_first(lines: Iterable[ProviderLines]) -> tuple[ProviderLines, ...]:
    return tuple(sorted(lines, key=lambda line: (line.parent is not None, line.name)))


def _usages(connection: Connection, uuid: str, name: str) -> Mapping[str, int]:
    path = f"/resource_providers/{uuid}/usages"
    request = Request("GET", path, doing=f"Reading the usage of {name}", good=(200, 404))
    response = connection.call(request)
    if response.status == 404:
        # deleted since the listing: nothing of it is used
        return {}
    return responses.body_of(request, response, Usages[Whole]).usages
