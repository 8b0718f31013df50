"""Reads of a provider's inventories, and writes under their locks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from msgspec.structs import astuple
from sqlalchemy import bindparam, func, select

from placement_server.store.dialects.batches import NewInventory, among
from placement_server.store.dialects.plain import PlainSelect
from placement_server.store.past_changes import RESERVED, TOTAL
from placement_server.store.providers import provider_rows
from placement_server.store.providers.capacity import single_precision, usable
from placement_server.store.records import InventoryRecord, Key, StoredInventory
from placement_server.store.tables import (
    allocations,
    inventories,
    resource_classes,
    resource_providers,
)
from placement_server.store.transaction import LostRace, ReadTransaction, WriteTransaction, aware

_C: Final = inventories.c
_KEY_INDEX: Final = "FORCE INDEX (uniq_inventories0resource_provider_resource_class)"


class HeldInventory(NamedTuple):
    """An inventory as stored, which a transaction that changes it has locked."""

    id: int
    provider_id: int
    class_id: int
    total: int
    reserved: int
    min_unit: int
    max_unit: int
    step_size: int
    allocation_ratio: float
    capacity: int
    used: int


_WRITTEN: Final = InventoryRecord.__struct_fields__
_STORED: Final = (
    resource_classes.c.name,
    *(_C[name] for name in _WRITTEN),
    _C.created_at,
    _C.updated_at,
)
_ALL: Final = provider_rows.select_with(
    inventories.join(resource_classes, resource_classes.c.id == _C.resource_class_id),
    _C.resource_provider_id,
    *_STORED,
    order_by=_C.resource_class_id,
)


def _held(condition: sa.ColumnElement[bool]) -> sa.Select[*tuple[Any, ...]]:
    """Lock rows in the order of (provider id, class id), on MySQL that of the scan."""
    columns = (_C[name] for name in HeldInventory._fields[3:])
    return (
        select(_C.id, _C.resource_provider_id, _C.resource_class_id, *columns)
        .where(condition)
        .order_by(_C.resource_provider_id, _C.resource_class_id)
        .with_hint(inventories, _KEY_INDEX, "mysql")
        .with_hint(inventories, _KEY_INDEX, "mariadb")
        .with_for_update()
    )


_HOLD: Final = _held(
    _C.resource_provider_id
    == select(resource_providers.c.id)
    .where(resource_providers.c.uuid == bindparam("uuid"))
    .scalar_subquery()
)
_HOLD_MANY: Final = _held(among(_C.resource_provider_id, "provider_ids"))
_KEYS: Final = select(_C.resource_provider_id, _C.resource_class_id).where(
    among(_C.resource_provider_id, "provider_ids")
)
_SUMS: Final = PlainSelect(
    select(
        allocations.c.resource_provider_id,
        allocations.c.resource_class_id,
        func.sum(allocations.c.used),
    )
    .where(
        among(allocations.c.resource_provider_id, "provider_ids"),
        among(allocations.c.resource_class_id, "class_ids"),
    )
    .group_by(allocations.c.resource_provider_id, allocations.c.resource_class_id)
)


def of_provider(tx: ReadTransaction, uuid: str) -> tuple[int, dict[str, StoredInventory]]:
    """Return the generation of a provider, and its inventories in the order of class ids.

    :raises ProviderNotFound: it does not exist.
    """
    generation, rows = provider_rows.get_with(tx, _ALL, uuid)
    return generation, {
        name: StoredInventory(InventoryRecord(*record), aware(updated or created))
        for name, *record, created, updated in rows
    }


def hold(tx: WriteTransaction, uuid: str) -> dict[Key, HeldInventory]:
    """Lock all inventories of a provider until the transaction ends, and return them.

    No other transaction can claim from them, change or remove them meanwhile. A provider that does
    not exist has none.
    """
    rows = tx.execute(_HOLD, {"uuid": uuid}).all()
    return {(row[1], row[2]): HeldInventory._make(row) for row in rows}


def hold_many(tx: WriteTransaction, provider_ids: Collection[int]) -> dict[Key, HeldInventory]:
    """Lock all inventories of several providers, and return them."""
    rows = tx.execute_among(_HOLD_MANY, "provider_ids", provider_ids)
    return {(row[1], row[2]): HeldInventory._make(row) for row in rows}


def write(
    tx: WriteTransaction,
    held_inventories: Mapping[Key, HeldInventory],
    records: Mapping[Key, InventoryRecord],
) -> None:
    """Make held inventories equal to `records` and add the missing ones.

    New ones are in use by the allocations that exist already:
    older software leaves some. Their providers must be locked before, so that none of those is
    given back meanwhile (see `require_none`). Inventories without a record stay as they are.
    """
    added_rows: list[NewInventory] = []
    other_rows: list[NewInventory] = []
    for key, record in sorted(records.items()):
        old_row = held_inventories.get(key)
        if tx.past is not None:
            old_total, old_reserved = (0, 0) if old_row is None else old_row[3:5]
            tx.past.add(key[0], TOTAL, key[1], old_total, record.total)
            tx.past.add(key[0], RESERVED, key[1], old_reserved, record.reserved)
        ratio = stored_ratio(tx, record.allocation_ratio)
        capacity = usable(record.total, record.reserved, ratio)
        rows = added_rows if old_row is None else other_rows
        rows.append(NewInventory._make((*key, *astuple(record)[:5], ratio, capacity)))
    if other_rows:
        tx.batches.replace_inventories(tx.connection, other_rows, tx.now)
    tx.batches.insert_inventories(tx.connection, added_rows, tx.now)


def remove(tx: WriteTransaction, held_inventories: Collection[HeldInventory]) -> None:
    """Delete held inventories, none of which may be in use."""
    if tx.past is not None:
        for inventory in held_inventories:
            tx.past.add(inventory.provider_id, TOTAL, inventory.class_id, inventory.total, 0)
    ids = (inventory.id for inventory in held_inventories)
    tx.count_among("DELETE FROM inventories WHERE id ", ids)


def require_none(tx: WriteTransaction, keys: Iterable[Key]) -> None:
    """Check that none of these providers has got an inventory of these classes.

    A writer that gives back allocations without an inventory calls this when it has locked the
    providers. A writer that adds an inventory locks its provider first and then sums up, so one of
    the two sees what the other did.

    :raises LostRace: there is such an inventory.
    """
    absent = set(keys)
    if not absent:
        return
    rows = tx.execute_among(_KEYS, "provider_ids", {key[0] for key in absent})
    for provider_id, class_id in sorted({(row[0], row[1]) for row in rows} & absent):
        raise LostRace(
            f"Provider number {provider_id} was given an inventory of class {class_id} meanwhile."
        )


def sum_allocations(tx: ReadTransaction, keys: Collection[Key]) -> dict[Key, int]:
    """Return the sums of the allocations; 0 for none."""
    if not keys:
        return {}
    provider_ids, class_ids = ({*numbers} for numbers in zip(*keys, strict=True))
    among_them = {
        "provider_ids": tx.batches.many(sorted(provider_ids)),
        "class_ids": tx.batches.many(sorted(class_ids)),
    }
    sums = {(row[0], row[1]): int(row[2]) for row in _SUMS.rows(tx.connection, among_them)}
    return {key: sums.get(key, 0) for key in keys}


def stored_ratio(tx: ReadTransaction, ratio: float) -> float:
    """Return the allocation ratio as the database will return it."""
    return single_precision(ratio) if tx.batches.family == "mysql" else float(ratio)
