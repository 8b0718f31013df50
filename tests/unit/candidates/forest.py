"""Provider trees for tests, written down as one would draw them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast
from urllib.parse import parse_qsl

from msgspec import Struct, field

from placement_server.candidates.index.follower import IndexFollower
from placement_server.candidates.index.index import Index
from placement_server.candidates.index.summaries import SummaryCache
from placement_server.candidates.index.writer import IndexWriter
from placement_server.candidates.query import parser as queries
from placement_server.candidates.query.query import CandidateQuery
from placement_server.candidates.response import Renderer
from placement_server.candidates.search.search import Search, SearchLimits
from placement_server.store.changes.snapshot import InventoryRow, NameRows, ProviderRow, TreeRows
from placement_server.store.store import Store

SHARING = "MISC_SHARES_VIA_AGGREGATE"
CLASSES = (
    "VCPU", "MEMORY_MB", "DISK_GB", "PCI_DEVICE", "SRIOV_NET_VF", "IPV4_ADDRESS", "VGPU",
)  # fmt: skip


class Inventory(Struct, frozen=True):
    total: int
    reserved: int = 0
    min_unit: int = 1
    max_unit: int = 2147483647
    step_size: int = 1
    ratio: float = 1.0
    used: int = 0


class Provider(Struct, frozen=True):
    """A provider of a test world; `parent` is the name of another one listed before it."""

    name: str
    parent: str | None = None
    inventory: Mapping[str, Inventory | int] = field(default_factory=dict)
    traits: tuple[str, ...] = ()
    aggregates: tuple[str, ...] = ()

    def stock(self) -> dict[str, Inventory]:
        return {
            name: inventory if isinstance(inventory, Inventory) else Inventory(inventory)
            for name, inventory in self.inventory.items()
        }


WORLD = [
    Provider("host", None, {"VCPU": 4}, ("CUSTOM_A",), ("agg",)),
    Provider("cell", "host", {"MEMORY_MB": Inventory(100, reserved=10, ratio=1.5, used=7)}),
    Provider("pool", None, {"DISK_GB": 10}, (SHARING,), ("agg",)),
]
"""A host with a cell, and a pool that it shares."""


def names_of(world: Sequence[Provider]) -> NameRows:
    """All class names and traits of a world; the sharing trait has the lowest id."""
    classes = list(CLASSES)
    traits = [SHARING]
    for provider in world:
        classes += [name for name in provider.inventory if name not in classes]
        traits += [name for name in provider.traits if name not in traits]
    return NameRows(
        {name: number for number, name in enumerate(classes)},
        {name: number for number, name in enumerate(traits, 1)},
    )


def root_of(world: Mapping[str, Provider], name: str) -> str:
    parent = world[name].parent
    return name if parent is None else root_of(world, parent)


def trees_of(world: Sequence[Provider], names: NameRows | None = None) -> list[TreeRows]:
    """The rows that the store would give for a world; the uuid of a provider is its name."""
    names = names or names_of(world)
    by_name = {provider.name: provider for provider in world}
    ids = {provider.name: number for number, provider in enumerate(world, 1)}
    trees: dict[int, list[ProviderRow]] = {}
    for provider in world:
        root = ids[root_of(by_name, provider.name)]
        trees.setdefault(root, []).append(
            ProviderRow(
                id=ids[provider.name],
                uuid=provider.name,
                parent_id=None if provider.parent is None else ids[provider.parent],
                root_id=root,
                inventories=_inventories(provider, names),
                trait_ids=tuple(sorted(names.trait_ids[trait] for trait in set(provider.traits))),
                aggregates=tuple(sorted(set(provider.aggregates))),
            )
        )
    return [TreeRows(root, tuple(rows)) for root, rows in trees.items()]


def _inventories(provider: Provider, names: NameRows) -> tuple[InventoryRow, ...]:
    rows = [
        InventoryRow(
            resource_class_id=names.class_ids[name],
            total=inventory.total,
            reserved=inventory.reserved,
            min_unit=inventory.min_unit,
            max_unit=inventory.max_unit,
            step_size=inventory.step_size,
            allocation_ratio=inventory.ratio,
            capacity=math.floor((inventory.total - inventory.reserved) * inventory.ratio),
            used=inventory.used,
        )
        for name, inventory in provider.stock().items()
    ]
    return tuple(sorted(rows, key=lambda row: row.resource_class_id))


def writer_of(world: Sequence[Provider]) -> IndexWriter:
    names = names_of(world)
    return IndexWriter(names, trees_of(world, names))


def ask(
    world: Sequence[Provider],
    query: str | CandidateQuery,
    version: int = 39,
    *,
    extensions: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Answer a query string on a world, as the client sees it."""
    index = writer_of(world).index
    if isinstance(query, str):
        pairs = parse_qsl(query, keep_blank_values=True)
        query = queries.parse(pairs, (1, version), extensions=extensions)
    return rendered(query, index, version, **options)


def rendered(
    query: CandidateQuery,
    index: Index,
    version: int = 39,
    summaries: SummaryCache | None = None,
    **options: Any,
) -> dict[str, Any]:
    """The body of an answer from an index."""
    limits = SearchLimits(limit=query.limit, **options)
    search = Search(query, index, limits, one_per_tree=version < 29)
    renderer = Renderer(query, search.plan, index, (1, version), summaries or SummaryCache())
    body: dict[str, Any] = json.loads(b"".join(renderer.body(search.candidates())))
    return body


Result = tuple[frozenset[tuple[str, str, int]], frozenset[tuple[str, frozenset[str]]]]


def results(body: Mapping[str, Any]) -> list[Result]:
    """The results of an answer at 1.34 or newer: (provider, class, amount), (suffix, providers)."""
    return [
        (
            frozenset(
                (provider, name, amount)
                for provider, allocation in request["allocations"].items()
                for name, amount in allocation["resources"].items()
            ),
            frozenset(
                (suffix, frozenset(providers)) for suffix, providers in request["mappings"].items()
            ),
        )
        for request in body["allocation_requests"]
    ]


def amounts(body: Mapping[str, Any]) -> list[str]:
    """The allocations of an answer, each as a sorted text such as `host(VCPU:1) pool(DISK:2)`."""
    found = []
    for request in body["allocation_requests"]:
        parts = []
        for provider, allocation in sorted(request["allocations"].items()):
            wanted = ",".join(f"{name}:{n}" for name, n in sorted(allocation["resources"].items()))
            parts.append(f"{provider}({wanted})")
        found.append(" ".join(parts))
    return sorted(found)


def mapping(body: Mapping[str, Any], *suffixes: str) -> set[tuple[str, ...]]:
    """The providers of some groups, each a single one, as a set of tuples."""
    return {
        tuple(request["mappings"][suffix][0] for suffix in suffixes)
        for request in body["allocation_requests"]
    }


def changed(world: Iterable[Provider], replacement: Provider) -> list[Provider]:
    return [replacement if provider.name == replacement.name else provider for provider in world]


class FixedFollower(IndexFollower):
    """An index that follows nothing."""

    def __init__(self, index: Index) -> None:
        self._index = index

    def index(self) -> Index:
        return self._index


NO_STORE = cast(Store, None)
