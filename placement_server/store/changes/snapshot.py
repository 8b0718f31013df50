"""Consistent reads of whole provider trees, for the search for candidates."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from msgspec import Struct

from placement_server.store.dialects import plain
from placement_server.store.dialects.batches import Batches, chunks
from placement_server.store.transaction import USAGE, ReadTransaction

# Texts, some with a condition to be appended: SQLAlchemy takes longer for each of these statements
# than the driver, and the first search, or one after a change of a tree, waits for all of them.
_PROVIDERS = (
    "SELECT resource_providers.id, uuid, parent_provider_id, root_provider_id "
    "FROM resource_providers"
)
_INVENTORY_COLUMNS = {
    **dict.fromkeys(("resource_provider_id", "resource_class_id", "total", "reserved"), int),
    **dict.fromkeys(("min_unit", "max_unit", "step_size"), int),
    "allocation_ratio": float,
    **dict.fromkeys(("capacity", "used"), int),
}
_INVENTORIES = f"SELECT {', '.join(_INVENTORY_COLUMNS)} FROM inventories"
_TRAITS = "SELECT resource_provider_id, trait_id FROM resource_provider_traits"
_JOINED_TRAITS = (
    "SELECT resource_provider_id, {traits} FROM resource_provider_traits "
    "GROUP BY resource_provider_id"
)
_AGGREGATES = (
    "SELECT resource_provider_id, placement_aggregates.uuid FROM resource_provider_aggregates "
    "JOIN placement_aggregates ON aggregate_id = placement_aggregates.id"
)
_USAGE = (
    "SELECT root_provider_id, resource_providers.id, resource_class_id, used "
    "FROM resource_providers JOIN inventories ON resource_provider_id = resource_providers.id"
)
_CHANGES = "SELECT id, root_provider_id, kind, write_id FROM changes"
_CHANGES_FROM = f"{_CHANGES} WHERE changes.id >= {{mark}}"
_PROVIDERS_OF_ROOTS = f"{_PROVIDERS} WHERE resource_providers.root_provider_id "
_USAGE_OF_ROOTS = f"{_USAGE} WHERE resource_providers.root_provider_id "
_INVENTORIES_OF = f"{_INVENTORIES} WHERE inventories.resource_provider_id "
_TRAITS_OF = f"{_TRAITS} WHERE resource_provider_traits.resource_provider_id "
_AGGREGATES_OF = f"{_AGGREGATES} WHERE resource_provider_aggregates.resource_provider_id "
# Rows of two kinds in the same five columns. The gaps are not one more condition of the first
# part: to find them too, an ordered and limited scan would begin with the oldest row.
_NEWS = (
    "WITH news AS (SELECT id, root_provider_id, kind, write_id FROM (SELECT id, root_provider_id, "
    "kind, write_id FROM changes WHERE id >= {mark} ORDER BY id LIMIT {limit}) AS newest{gaps}) "
    "SELECT NULL AS provider_id, id, root_provider_id, kind, write_id FROM news UNION ALL {used}"
)
_IN_GAPS = " UNION ALL SELECT id, root_provider_id, kind, write_id FROM changes WHERE id "
_USED = (
    "SELECT p.id, p.root_provider_id, inventories.resource_class_id, inventories.used, NULL "
    "FROM resource_providers p {inventories} WHERE p.root_provider_id {few}"
)
_USED_ROOTS = f"SELECT root_provider_id FROM news WHERE kind = {USAGE} AND id <> {{mark}}"


Usage = dict[int, dict[tuple[int, int], int]]
"""Used amounts, by root id and then by (provider id, class id)."""


class InventoryRow(Struct, frozen=True):
    """One inventory with its usage.

    :param capacity: the largest total usage that the inventory admits, an exact integer.
    :param used: the sum of all allocations against it.
    """

    resource_class_id: int
    total: int
    reserved: int
    min_unit: int
    max_unit: int
    step_size: int
    allocation_ratio: float
    capacity: int
    used: int


class ProviderRow(Struct, frozen=True):
    """One resource provider with everything on which it depends whether it can serve a request.

    :param inventories: by ascending class id.
    :param trait_ids: ascending.
    :param aggregates: uuids as stored, sorted.
    """

    id: int
    uuid: str
    parent_id: int | None
    root_id: int
    inventories: tuple[InventoryRow, ...] = ()
    trait_ids: tuple[int, ...] = ()
    aggregates: tuple[str, ...] = ()


class TreeRows(Struct, frozen=True):
    """All providers with one root, by ascending id."""

    root_id: int
    providers: tuple[ProviderRow, ...]


class NameRows(Struct, frozen=True):
    """Every resource class and trait, by name."""

    class_ids: dict[str, int]
    trait_ids: dict[str, int]


class ChangeRow(NamedTuple):
    """One change record: a tree was touched.

    :ivar write_id: the random number of the write.
    """

    id: int
    root_id: int
    kind: int
    write_id: int


def names(tx: ReadTransaction) -> NameRows:
    """Read the names of all resource classes and traits."""
    return NameRows(
        dict(plain.whole_rows(tx.connection, "SELECT name, id FROM resource_classes")),
        dict(plain.whole_rows(tx.connection, "SELECT name, id FROM traits")),
    )


def provider_rows(tx: ReadTransaction) -> Sequence[Any]:
    """Read id, uuid, and the ids of parent and root of every provider."""
    return plain.whole_rows(tx.connection, _PROVIDERS)


def inventory_rows(tx: ReadTransaction) -> Sequence[Any]:
    """Read every inventory: the provider's id, and then what an `InventoryRow` has."""
    return plain.whole_rows(tx.connection, _INVENTORIES)


def packed_inventories(tx: ReadTransaction) -> bytes | None:
    """Read what `inventory_rows` returns as bytes, as `Batches.packed` does; None: as rows only."""
    statement = tx.batches.packed("inventories", _INVENTORY_COLUMNS, "resource_class_id")
    if statement is None:
        return None
    return b"".join([packed for (packed,) in plain.whole_rows(tx.connection, statement)])


def trait_rows(tx: ReadTransaction) -> Sequence[Any]:
    """Read pairs of the ids of a provider and of a trait of it."""
    return plain.whole_rows(tx.connection, _TRAITS)


def joined_trait_rows(tx: ReadTransaction) -> Sequence[Any]:
    """Read the id of each provider with traits, and their ids with commas between, in any order.

    Most rows of a store are pairs of a provider and a trait, and most providers have equal traits.
    """
    traits = tx.batches.comma_list.format("CAST(trait_id AS TEXT)")
    return plain.whole_rows(tx.connection, _JOINED_TRAITS.format(traits=traits))


def aggregate_rows(tx: ReadTransaction) -> Sequence[Any]:
    """Read pairs of the id of a provider and the uuid of an aggregate of it."""
    return plain.whole_rows(tx.connection, _AGGREGATES)


def trees(tx: ReadTransaction, root_ids: Collection[int]) -> dict[int, TreeRows | None]:
    """Read some trees; `None` for a root that has no providers any more."""
    trees_by_root: dict[int, TreeRows | None] = dict.fromkeys(root_ids)
    for roots in chunks(sorted(root_ids), 1000):
        providers = list(tx.rows_among(_PROVIDERS_OF_ROOTS, roots))
        ids = [row[0] for row in providers]
        trees_by_root.update(
            _assemble(
                providers,
                tx.rows_among(_INVENTORIES_OF, ids),
                tx.rows_among(_TRAITS_OF, ids),
                tx.rows_among(_AGGREGATES_OF, ids),
            )
        )
    return trees_by_root


def usage(tx: ReadTransaction, root_ids: Collection[int]) -> Usage:
    """Read the used amounts in some trees."""
    used_amounts: Usage = {root_id: {} for root_id in root_ids}
    for root_id, provider_id, class_id, used in tx.rows_among(_USAGE_OF_ROOTS, root_ids):
        used_amounts[root_id][provider_id, class_id] = used
    return used_amounts


def changes_since(tx: ReadTransaction, last: int, gaps: Collection[int]) -> list[ChangeRow]:
    """Read the changes from the id `last` on, itself included, and those with ids in `gaps`."""
    statement = _CHANGES_FROM.format(mark=tx.batches.mark)
    parameters: tuple[object, ...] = (last,)
    if gaps:
        among, values = tx.batches.among(list(gaps))
        statement += f" OR changes.id {among}"
        parameters += values
    return [ChangeRow(*row) for row in plain.rows(tx.connection, statement, parameters)]


def news(
    tx: ReadTransaction, last: int, gaps: Sequence[int], limit: int
) -> tuple[list[ChangeRow], Usage]:
    """Read `changes_since`, and the `usage` of the trees of which only that changed.

    It is one statement, so it needs no transaction. `gaps` are all below `last`. From `last`
    on no more than `limit` changes are returned.
    """
    parameters: tuple[object, ...] = (last,)
    in_gaps = ""
    if gaps:
        among, values = tx.batches.among(gaps)
        in_gaps = _IN_GAPS + among
        parameters += values
    statement = _news(tx.batches, limit, in_gaps)
    changes: list[ChangeRow] = []
    used: Usage = defaultdict(dict)
    for provider_id, first, second, third, write_id in plain.rows(
        tx.connection, statement, (*parameters, last)
    ):
        if provider_id is None:
            changes.append(ChangeRow(first, second, third, write_id))
        else:
            used[first][provider_id, second] = third
    return changes, used


@functools.lru_cache
def _news(batches: Batches, limit: int, in_gaps: str) -> str:
    """Return the statement: for nearly all requests, which have no gaps, the same text object."""
    return _NEWS.format(
        mark=batches.mark,
        limit=limit,
        gaps=in_gaps,
        used=_USED.format(
            inventories=batches.join_to_few(
                "inventories", "inventories.resource_provider_id = p.id"
            ),
            few=batches.few.format(_USED_ROOTS.format(mark=batches.mark)),
        ),
    )


def newest_change_ids(tx: ReadTransaction, count: int) -> list[int]:
    """Return the highest ids among the changes, ascending."""
    statement = f"SELECT id FROM changes ORDER BY id DESC LIMIT {count}"
    rows = plain.whole_rows(tx.connection, statement)
    return [number for (number,) in reversed(rows)]


def _assemble(
    providers: Iterable[Any],
    inventories: Iterable[Any],
    traits: Iterable[Any],
    aggregates: Iterable[Any],
) -> dict[int, TreeRows]:
    """Assemble the trees from the rows of the four tables."""
    stock: defaultdict[int, list[InventoryRow]] = defaultdict(list)
    for provider_id, *columns in inventories:
        stock[provider_id].append(InventoryRow(*columns))
    trait_ids: defaultdict[int, list[int]] = defaultdict(list)
    for provider_id, trait_id in traits:
        trait_ids[provider_id].append(trait_id)
    member_of: defaultdict[int, list[str]] = defaultdict(list)
    for provider_id, uuid in aggregates:
        member_of[provider_id].append(uuid)
    trees: defaultdict[int, list[ProviderRow]] = defaultdict(list)
    for provider_id, uuid, parent_id, root_id in providers:
        # Old databases may have roots that do not name themselves.
        root = provider_id if root_id is None and parent_id is None else root_id
        trees[root].append(
            ProviderRow(
                id=provider_id,
                uuid=uuid,
                parent_id=parent_id,
                root_id=root,
                inventories=tuple(sorted(stock.get(provider_id, ()), key=_class_id)),
                trait_ids=tuple(sorted(trait_ids.get(provider_id, ()))),
                aggregates=tuple(sorted(member_of.get(provider_id, ()))),
            )
        )
    return {
        root: TreeRows(root, tuple(sorted(rows, key=_provider_id))) for root, rows in trees.items()
    }


_class_id = attrgetter("resource_class_id")
_provider_id = attrgetter("id")
