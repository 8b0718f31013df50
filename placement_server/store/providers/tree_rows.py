"""Reads of whole trees."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final

from placement_server.store.dialects.batches import chunks
from placement_server.store.errors import ProviderNotFound
from placement_server.store.providers.inventory_rows import HeldInventory
from placement_server.store.providers.tree import SHARING_TRAIT, Tree, TreeProvider
from placement_server.store.transaction import ReadTransaction

# Texts, because composing a statement would cost more than most of these reads.
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


def among(tx: ReadTransaction, statement: str, values: Collection[Any]) -> Iterator[Any]:
    """Execute a statement that ends with a column, for any of these values of it."""
    for chunk in chunks(sorted(values)):
        condition, parameters = tx.batches.among(chunk)
        yield from tx.connection.exec_driver_sql(statement + condition, parameters)


def read(tx: ReadTransaction, uuid: str) -> Tree:
    """Return the tree of a provider.

    :raises ProviderNotFound: the provider does not exist.
    """
    for (root_id,) in among(tx, _ROOT, [uuid]):
        return Tree.of(root_id, _read_providers(tx, root_id))
    raise ProviderNotFound(uuid)


def read_sharing(tx: ReadTransaction, tree: Tree) -> list[Tree]:
    """Return the other trees that have a sharing provider in an aggregate of this one."""
    root_ids = {root_id for (root_id,) in among(tx, _SHARING_ROOTS, tree.aggregates)}
    return [
        Tree.of(root_id, _read_providers(tx, root_id))
        for root_id in sorted(root_ids - {tree.root_id})
    ]


def _read_providers(tx: ReadTransaction, root_id: int) -> Collection[TreeProvider]:
    rows = list(among(tx, f"{_PROVIDERS}root_provider_id ", [root_id]))
    if all(row[0] != root_id for row in rows):
        # A root of an old database may not name itself.
        rows += among(tx, f"{_PROVIDERS}id ", [root_id])
    providers = {row[0]: TreeProvider(*row) for row in rows}
    for name, *columns in among(tx, _INVENTORIES, providers):
        inventory = HeldInventory(*columns)
        providers[inventory.provider_id].stock[name] = inventory
    for provider_id, name in among(tx, _TRAITS, providers):
        providers[provider_id].traits.append(name)
    for provider_id, uuid in among(tx, _AGGREGATES, providers):
        providers[provider_id].aggregates.append(uuid)
    return providers.values()
