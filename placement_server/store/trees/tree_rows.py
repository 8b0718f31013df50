"""Reads of whole trees, and of what consumers hold in them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

from placement_server.store.dialects import chunks
from placement_server.store.errors import ProviderNotFound
from placement_server.store.providers.inventory_rows import HeldInventory
from placement_server.store.records import ConsumerRecord
from placement_server.store.transactions.transaction import ReadTransaction
from placement_server.store.trees.tree import Holdings, Tree, TreeProvider

# Texts, because composing a statement would cost more than most of these reads.
_ROOT: Final = "SELECT COALESCE(root_provider_id, id) FROM resource_providers WHERE uuid "
_PROVIDERS: Final = (
    "SELECT id, uuid, COALESCE(name, ''), generation, parent_provider_id, "
    "COALESCE(root_provider_id, id) FROM resource_providers WHERE "
)
_INVENTORIES: Final = (
    "SELECT c.name, i.id, i.resource_provider_id, i.resource_class_id, i.total, i.reserved, "
    "i.min_unit, i.max_unit, i.step_size, i.allocation_ratio, i.capacity, i.used "
    "FROM inventories i JOIN resource_classes c ON c.id = i.resource_class_id "
    "WHERE i.resource_provider_id "
)
_TRAITS: Final = (
    "SELECT l.resource_provider_id, t.name, t.id FROM resource_provider_traits l "
    "JOIN traits t ON t.id = l.trait_id WHERE l.resource_provider_id "
)
_AGGREGATES: Final = (
    "SELECT l.resource_provider_id, a.uuid, a.id FROM resource_provider_aggregates l "
    "JOIN placement_aggregates a ON a.id = l.aggregate_id WHERE l.resource_provider_id "
)
_ALLOCATIONS: Final = (
    "SELECT a.consumer_id, a.resource_provider_id, c.name, a.used FROM allocations a "
    "JOIN resource_classes c ON c.id = a.resource_class_id WHERE a.resource_provider_id "
)
_CONSUMERS: Final = (
    "SELECT c.uuid, c.generation, p.external_id, u.external_id, t.name FROM consumers c "
    "JOIN projects p ON p.id = c.project_id JOIN users u ON u.id = c.user_id "
    "LEFT JOIN consumer_types t ON t.id = c.consumer_type_id WHERE c.uuid "
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
        return Tree.of(root_id, read_providers(tx, [root_id]))
    raise ProviderNotFound(uuid)


def read_shapes(tx: ReadTransaction, root_ids: Sequence[int]) -> list[TreeProvider]:
    """Return the providers with these roots, without inventories, traits and aggregates."""
    rows = among(tx, f"{_PROVIDERS}root_provider_id ", root_ids)
    providers = {row[0]: TreeProvider(*row) for row in rows}
    # A root of an old database may not name itself.
    alone = [root_id for root_id in root_ids if root_id not in providers]
    rows = among(tx, f"{_PROVIDERS}id ", alone)
    providers.update((row[0], TreeProvider(*row)) for row in rows)
    return [providers[provider_id] for provider_id in sorted(providers)]


def read_named(tx: ReadTransaction, uuids: Collection[str]) -> list[TreeProvider]:
    """Return the providers with these uuids, as :func:`read_shapes` does."""
    return [TreeProvider(*row) for row in among(tx, f"{_PROVIDERS}uuid ", uuids)]


def read_providers(tx: ReadTransaction, root_ids: Sequence[int]) -> list[TreeProvider]:
    """Return the providers with these roots, by ascending id."""
    providers = {provider.id: provider for provider in read_shapes(tx, root_ids)}
    for name, *columns in among(tx, _INVENTORIES, providers):
        inventory = HeldInventory(*columns)
        providers[inventory.provider_id].stock[name] = inventory
    for provider_id, name, trait_id in among(tx, _TRAITS, providers):
        providers[provider_id].trait_ids[name] = trait_id
    for provider_id, uuid, aggregate_id in among(tx, _AGGREGATES, providers):
        providers[provider_id].aggregate_ids[uuid] = aggregate_id
    return list(providers.values())


def read_with_holdings(tx: ReadTransaction, uuid: str) -> tuple[Tree, list[Holdings]]:
    """Return the tree of a provider, and who holds what in it, by consumer.

    :raises ProviderNotFound: the provider does not exist.
    """
    tree = read(tx, uuid)
    return tree, holdings(tx, tree.providers)


def holdings(tx: ReadTransaction, providers: Collection[TreeProvider]) -> list[Holdings]:
    """Return who holds what of these providers, by consumer."""
    uuids = {provider.id: provider.uuid for provider in providers}
    amounts: dict[str, dict[str, dict[str, int]]] = {}
    for consumer, provider_id, resource_class, used in among(tx, _ALLOCATIONS, uuids):
        of_provider = amounts.setdefault(consumer, {}).setdefault(uuids[provider_id], {})
        # Software of old could write two rows of one class.
        of_provider[resource_class] = of_provider.get(resource_class, 0) + used
    consumer_records = records(tx, amounts)
    return [
        # Databases of old software may have allocations whose consumer has no record.
        Holdings(consumer_records.get(uuid) or ConsumerRecord(uuid, 0, "", "", None), amounts[uuid])
        for uuid in sorted(amounts)
    ]


def records(tx: ReadTransaction, consumer_uuids: Collection[str]) -> dict[str, ConsumerRecord]:
    """Return the records of those consumers that have one."""
    return {row[0]: ConsumerRecord(*row) for row in among(tx, _CONSUMERS, consumer_uuids)}
