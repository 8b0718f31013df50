"""Provider trees, read whole: the providers in preorder, and the tag of their structure."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from functools import cached_property
from operator import attrgetter
from typing import Final

import orjson
from msgspec import Struct

from placement_server.store.errors import ProviderNotFound
from placement_server.store.providers.inventory_rows import HeldInventory
from placement_server.store.transaction import ReadTransaction

SHARING_TRAIT: Final = "MISC_SHARES_VIA_AGGREGATE"
"""The trait of providers that trees with one of their aggregates may use."""
_DIGEST_BYTES: Final = 16

_ROOT: Final = "SELECT COALESCE(root_provider_id, id) FROM resource_providers WHERE uuid "
_PROVIDERS: Final = (
    "SELECT id, uuid, COALESCE(name, ''), generation, parent_provider_id "
    "FROM resource_providers WHERE "
)
_INVENTORIES: Final = (
    "SELECT c.name, i.id, i.resource_provider_id, i.resource_class_id, i.total, i.reserved, "
    "i.min_unit, i.max_unit, i.step_size, i.allocation_ratio, i.capacity, i.used "
    "FROM inventories i JOIN resource_classes c ON c.id = i.resource_class_id "
    "WHERE i.resource_provider_id "
)
_TRAITS: Final = (
    "SELECT l.resource_provider_id, t.name FROM resource_provider_traits l "
    "JOIN traits t ON t.id = l.trait_id WHERE l.resource_provider_id "
)
_AGGREGATES: Final = (
    "SELECT l.resource_provider_id, a.uuid FROM resource_provider_aggregates l "
    "JOIN placement_aggregates a ON a.id = l.aggregate_id WHERE l.resource_provider_id "
)
_SHARING_ROOTS: Final = (
    "SELECT DISTINCT COALESCE(p.root_provider_id, p.id) FROM resource_providers p "
    "JOIN resource_provider_traits l ON l.resource_provider_id = p.id "
    f"JOIN traits t ON t.id = l.trait_id AND t.name = '{SHARING_TRAIT}' "
    "JOIN resource_provider_aggregates m ON m.resource_provider_id = p.id "
    "JOIN placement_aggregates a ON a.id = m.aggregate_id WHERE a.uuid "
)


class TreeProvider(Struct):
    """A provider with all that is stored of it.

    :ivar stock: its inventories by resource class.
    """

    id: int
    uuid: str
    name: str
    generation: int
    parent_id: int | None
    stock: dict[str, HeldInventory] = {}
    traits: list[str] = []
    aggregates: list[str] = []


class Tree(Struct, frozen=True, dict=True):
    """The providers with one root, in preorder: children follow their parent, by name."""

    root_id: int
    providers: tuple[TreeProvider, ...]

    @classmethod
    def of(cls, root_id: int, providers: Iterable[TreeProvider]) -> Tree:
        """Put providers in preorder.

        In a damaged tree some are not below the root: they come last, and are not left out.
        """
        by_name = sorted(providers, key=_name, reverse=True)
        children: dict[int | None, list[TreeProvider]] = {}
        for provider in by_name:
            children.setdefault(provider.parent_id, []).append(provider)
        waiting_providers = [provider for provider in by_name if provider.id == root_id]
        ordered_providers: dict[int, TreeProvider] = {}
        while waiting_providers:
            provider = waiting_providers.pop()
            if provider.id not in ordered_providers:
                ordered_providers[provider.id] = provider
                waiting_providers.extend(children.get(provider.id, ()))
        strays = [
            provider for provider in reversed(by_name) if provider.id not in ordered_providers
        ]
        return cls(root_id, (*ordered_providers.values(), *strays))

    @property
    def root_uuid(self) -> str:
        return self.providers[0].uuid

    def parent_uuids(self) -> dict[int, str | None]:
        """Return the uuid of each provider's parent, by the id of the provider."""
        uuids = {provider.id: provider.uuid for provider in self.providers}
        return {
            provider.id: None if provider.parent_id is None else uuids.get(provider.parent_id)
            for provider in self.providers
        }

    @property
    def aggregates(self) -> set[str]:
        """The aggregates of all its providers."""
        return {aggregate for provider in self.providers for aggregate in provider.aggregates}

    def shared_with(self, other: Tree) -> list[TreeProvider]:
        """Return the providers that another tree may use by an aggregate."""
        return [
            provider
            for provider in self.providers
            if SHARING_TRAIT in provider.traits
            and not other.aggregates.isdisjoint(provider.aggregates)
        ]

    @cached_property
    def tag(self) -> str:
        """A digest of the structure.

        It is of names, parents, inventories, traits and aggregates: not of generations, which
        claims raise, and not of ids, which a database that was restored has others of.
        """
        parents = self.parent_uuids()
        return _digest(
            [
                [
                    provider.uuid,
                    provider.name,
                    parents[provider.id],
                    [
                        [name, *_structure(inventory)]
                        for name, inventory in sorted(provider.stock.items())
                    ],
                    sorted(provider.traits),
                    sorted(provider.aggregates),
                ]
                for provider in self.providers
            ]
        )


_name = attrgetter("name", "uuid")
_structure = attrgetter(
    "total", "reserved", "min_unit", "max_unit", "step_size", "allocation_ratio"
)


def extend_tag(tag: str, document: object) -> str:
    """Return the tag of a representation that shows more than the structure."""
    return f"{tag}-{_digest(document)}"


def _digest(document: object) -> str:
    """Return a short text that is another one for every other document."""
    text = orjson.dumps(document, option=orjson.OPT_SORT_KEYS)
    return hashlib.blake2b(text, digest_size=_DIGEST_BYTES).hexdigest()


# Texts, because composing a statement would cost more than most of these reads.
def read_tree(tx: ReadTransaction, uuid: str) -> Tree:
    """Return the tree of a provider.

    :raises ProviderNotFound: the provider does not exist.
    """
    for (root_id,) in tx.rows_among(_ROOT, [uuid]):
        return Tree.of(root_id, _read_providers(tx, root_id))
    raise ProviderNotFound(uuid)


def read_sharing_trees(tx: ReadTransaction, tree: Tree) -> list[Tree]:
    """Return the other trees that have a sharing provider in an aggregate of this one."""
    root_ids = {root_id for (root_id,) in tx.rows_among(_SHARING_ROOTS, tree.aggregates)}
    return [
        Tree.of(root_id, _read_providers(tx, root_id))
        for root_id in sorted(root_ids - {tree.root_id})
    ]


def _read_providers(tx: ReadTransaction, root_id: int) -> Collection[TreeProvider]:
    rows = list(tx.rows_among(f"{_PROVIDERS}root_provider_id ", [root_id]))
    if all(row[0] != root_id for row in rows):
        # A root of an old database may not name itself.
        rows += tx.rows_among(f"{_PROVIDERS}id ", [root_id])
    providers = {row[0]: TreeProvider(*row) for row in rows}
    for name, *columns in tx.rows_among(_INVENTORIES, providers):
        inventory = HeldInventory(*columns)
        providers[inventory.provider_id].stock[name] = inventory
    for provider_id, name in tx.rows_among(_TRAITS, providers):
        providers[provider_id].traits.append(name)
    for provider_id, uuid in tx.rows_among(_AGGREGATES, providers):
        providers[provider_id].aggregates.append(uuid)
    return providers.values()
