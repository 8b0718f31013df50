"""The audit of the invariants of the data, and the repair of derived data.

Each check is a query for rows that contradict an invariant (docs/understand/database.md lists
them). Only derived data is repaired; what would need a guess is reported and left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy import bindparam, func, select

from placement_server.store.data_migrations import INCOMPLETE_CONSUMERS
from placement_server.store.dialects.batches import chunks
from placement_server.store.providers import inventory_rows
from placement_server.store.providers.capacity import usable
from placement_server.store.providers.provider_rows import HOLD_PROVIDERS
from placement_server.store.tables import (
    allocations,
    consumers,
    inventories,
    placement_aggregates,
    projects,
    resource_classes,
    resource_provider_aggregates,
    resource_providers,
    users,
)
from placement_server.store.transaction import STRUCTURE, USAGE, ReadTransaction, WriteTransaction

_A: Final = allocations.c
_I: Final = inventories.c
_P: Final = resource_providers.c

_SUMS: Final = (
    select(
        _A.resource_provider_id,
        _A.resource_class_id,
        func.sum(_A.used).label("total"),
    )
    .group_by(_A.resource_provider_id, _A.resource_class_id)
    .subquery("sums")
)
_TOTAL: Final = func.coalesce(_SUMS.c.total, 0)
_OF_SUM: Final = sa.and_(
    _SUMS.c.resource_provider_id == _I.resource_provider_id,
    _SUMS.c.resource_class_id == _I.resource_class_id,
)
_WRONG_USES: Final = (
    select(
        _I.resource_provider_id,
        _P.uuid,
        resource_classes.c.name,
        _I.resource_class_id,
        _I.used,
        _TOTAL,
    )
    .select_from(inventories)
    .outerjoin(_SUMS, _OF_SUM)
    .outerjoin(resource_providers, _P.id == _I.resource_provider_id)
    .outerjoin(resource_classes, resource_classes.c.id == _I.resource_class_id)
    .where(_I.used != _TOTAL)
)
_CAPACITIES: Final = (
    select(
        _I.resource_provider_id,
        _P.uuid,
        _I.resource_class_id,
        _I.total,
        _I.reserved,
        _I.allocation_ratio,
        _I.capacity,
    )
    .select_from(inventories)
    .outerjoin(resource_providers, _P.id == _I.resource_provider_id)
)
_WITHOUT_INVENTORY: Final = (
    select(_A.consumer_id, _A.resource_provider_id, _A.resource_class_id, _A.used)
    .outerjoin(
        inventories,
        sa.and_(
            _I.resource_provider_id == _A.resource_provider_id,
            _I.resource_class_id == _A.resource_class_id,
        ),
    )
    .where(_I.id.is_(None))
)
_IS_ORPHAN: Final = ~sa.exists().where(_A.consumer_id == consumers.c.uuid)
_ORPHANS: Final = select(consumers.c.uuid, consumers.c.generation).where(_IS_ORPHAN)
_PROVIDERS: Final = select(_P.id, _P.uuid, _P.parent_provider_id, _P.root_provider_id)
_SET_NUMBERS: Final = (
    sa.update(inventories)
    .where(_I.id == bindparam("the_id"))
    .values(used=bindparam("right_used"), capacity=bindparam("right_capacity"))
)


_STRAYS: Final = {
    column: select(column).where(~sa.exists().where(owner_id == column)).distinct()
    for column, owner_id in (
        (_I.resource_provider_id, _P.id),
        (resource_provider_aggregates.c.resource_provider_id, _P.id),
        (resource_provider_aggregates.c.aggregate_id, placement_aggregates.c.id),
    )
}
"""Rows that belong to nothing, by the column that names what there is not."""
_LOST_OWNERS: Final = {
    table.name: select(consumers.c.uuid, owner_id).where(~sa.exists().where(table.c.id == owner_id))
    for table, owner_id in ((projects, consumers.c.project_id), (users, consumers.c.user_id))
}
_UNKNOWN_CLASSES: Final = {
    table: (
        select(class_id, owner, _P.uuid, func.count())
        .outerjoin(resource_providers, _P.id == owner)
        .where(~sa.exists().where(resource_classes.c.id == class_id))
        .group_by(class_id, owner, _P.uuid)
    )
    for table in (inventories, allocations)
    for class_id, owner in ((table.c.resource_class_id, table.c.resource_provider_id),)
}


class Violation(NamedTuple):
    """One violation of an invariant; `mendable` if `repair` can correct it."""

    check: str
    subject: str
    detail: str
    mendable: bool = False

    def __str__(self) -> str:
        return f"{self.check}: {self.subject}: {self.detail}"


def audit(tx: ReadTransaction) -> list[Violation]:
    """Return all violations, in one consistent view of the database."""
    return [problem for check in _CHECKS for problem in check(tx)]


def _uses(tx: ReadTransaction) -> Iterator[Violation]:
    for _, uuid, name, class_id, used, held_amount in tx.execute(_WRONG_USES):
        inventory = f"{name or class_id} of provider {uuid}"
        detail = f"{used} in use by the inventory, {int(held_amount)} by the sum of its allocations"
        yield Violation("use", inventory, detail, mendable=True)


def _capacities(tx: ReadTransaction) -> Iterator[Violation]:
    for _, uuid, class_id, capacity, right in _wrong_capacities(tx):
        detail = f"is {capacity}, and {right} by total, reserved and ratio"
        yield Violation("capacity", f"class {class_id} of provider {uuid}", detail, mendable=True)


def _allocations_without_inventory(tx: ReadTransaction) -> Iterator[Violation]:
    for consumer, provider_id, class_id, used in tx.execute(_WITHOUT_INVENTORY):
        detail = (
            f"holds {used} of class {class_id} of provider number {provider_id}, which has no "
            "such inventory; add the inventory, or rewrite the consumer's allocations"
        )
        yield Violation("allocation", f"consumer {consumer}", detail)


def _consumers(tx: ReadTransaction) -> Iterator[Violation]:
    detail = "has allocations but no record; run 'placement-manage db online_data_migrations'"
    for (uuid,) in tx.execute(INCOMPLETE_CONSUMERS):
        yield Violation("consumer", f"consumer {uuid}", detail)
    for uuid, generation in tx.execute(_ORPHANS):
        detail = f"has a record of generation {generation} but no allocations"
        yield Violation("consumer", f"consumer {uuid}", detail, mendable=True)
    for table, statement in _LOST_OWNERS.items():
        for uuid, number in tx.execute(statement):
            detail = (
                f"is of number {number} of table {table}, which does not exist: no usage counts "
                "it, and no client sees its generation; insert that row, or delete the allocations "
                "and claim again"
            )
            yield Violation("consumer", f"consumer {uuid}", detail)


def _trees(tx: ReadTransaction) -> Iterator[Violation]:
    providers = _provider_rows(tx)
    for provider_id, (uuid, parent_id, root_id) in providers.items():
        top, is_mendable = _top(providers, provider_id), False
        if parent_id is not None and parent_id not in providers:
            detail = f"its parent {parent_id} is gone"
        elif top is None:
            detail = (
                "is its own ancestor; take it out with PUT /resource_providers/{uuid} and "
                "parent_provider_uuid null"
            )
        elif top != root_id:
            detail = f"has root number {root_id}, its topmost ancestor is number {top}"
            is_mendable = True
        else:
            continue
        yield Violation("tree", f"provider {uuid}", detail, is_mendable)


def _strays(tx: ReadTransaction) -> Iterator[Violation]:
    for column, strays in _STRAYS.items():
        for (number,) in tx.execute(strays):
            detail = f"has rows of {column.name} {number}, which does not exist"
            yield Violation("stray", f"table {column.table.name}", detail, mendable=True)


def _unknown_classes(tx: ReadTransaction) -> Iterator[Violation]:
    """Find rows of classes that do not exist.

    No request shows them, and they cannot be claimed or given back.
    """
    for table, statement in _UNKNOWN_CLASSES.items():
        for number, provider_id, uuid, rows in tx.execute(statement):
            detail = (
                f"has {rows} of class {number} at provider {uuid or f'number {provider_id}'}, and "
                "there is no such class; insert it into resource_classes, or delete the rows"
            )
            yield Violation("class", f"table {table.name}", detail)


_CHECKS: Final[tuple[Callable[[ReadTransaction], Iterator[Violation]], ...]] = (
    _uses,
    _capacities,
    _allocations_without_inventory,
    _consumers,
    _trees,
    _strays,
    _unknown_classes,
)

KINDS: Final = ("use", "capacity", "allocation", "consumer", "tree", "stray", "class")
"""The values of `Violation.check`."""


def over_capacity(tx: ReadTransaction) -> list[str]:
    """Return inventories used beyond their capacity: legal, as one may shrink below its use."""
    statement = (
        select(_P.uuid, resource_classes.c.name, _I.used, _I.capacity)
        .select_from(inventories)
        .join(resource_providers, _P.id == _I.resource_provider_id)
        .join(resource_classes, resource_classes.c.id == _I.resource_class_id)
        .where(_I.used > _I.capacity)
        .order_by(_P.id, _I.resource_class_id)
    )
    return [
        f"{name} of provider {uuid}: {used} of {capacity} in use"
        for uuid, name, used, capacity in tx.execute(statement)
    ]


def repair(tx: WriteTransaction) -> None:
    """Repair everything that is mendable. It may run while services do.

    The order is that in which all writers take locks: consumers, inventories, providers.
    """
    _remove_orphans(tx)
    for column, strays in _STRAYS.items():
        for ids in chunks(sorted(tx.execute(strays).scalars())):
            tx.execute(sa.delete(column.table).where(column.in_(ids)))
    _repair_inventories(tx)
    _repair_trees(tx)
    tx.touch_names()


def _repair_trees(tx: WriteTransaction) -> None:
    wrong_roots = _wrong_roots(_provider_rows(tx))
    if not wrong_roots:
        return
    # all trees are locked, in the order in which claims lock providers, and read again
    tx.execute(HOLD_PROVIDERS).all()
    providers = _provider_rows(tx)
    for provider_id, top in sorted(_wrong_roots(providers).items()):
        tx.execute(
            sa.update(resource_providers).where(_P.id == provider_id).values(root_provider_id=top)
        )
        old_root = providers[provider_id][2]
        tx.touch([top] if old_root is None else [top, old_root], STRUCTURE)
        if old_root == provider_id:
            tx.end_tree(old_root, providers[provider_id][0])


def _repair_inventories(tx: WriteTransaction) -> None:
    """Lock the inventories of providers with a wrong number, then compute it again and set it.

    A claim inserts its allocations before it locks the inventory. One that waits for this lock is
    not in the sum yet and adds itself afterwards; one that is in the sum has ended.
    """
    suspects = {row[0] for row in tx.execute(_WRONG_USES)}
    suspects |= {row[0] for row in _wrong_capacities(tx)}
    for ids in chunks(sorted(suspects), 500):
        inventories_by_key = inventory_rows.hold_many(tx, ids)
        sums = inventory_rows.sum_allocations(tx, inventories_by_key)
        updates = [
            {
                "the_id": inventory.id,
                "right_used": sums[key],
                "right_capacity": usable(
                    inventory.total, inventory.reserved, inventory.allocation_ratio
                ),
            }
            for key, inventory in inventories_by_key.items()
        ]
        tx.execute(_SET_NUMBERS, updates)
        roots = set(tx.execute(select(_P.root_provider_id).where(_P.id.in_(ids))).scalars())
        for kind in (STRUCTURE, USAGE):
            tx.touch(roots - {None}, kind)


def _wrong_capacities(tx: ReadTransaction) -> Iterator[tuple[int, str, int, int, int]]:
    """Yield id and uuid of providers, ids of classes, their capacities and the right ones."""
    for provider_id, uuid, class_id, total, reserved, ratio, capacity in tx.execute(_CAPACITIES):
        right = usable(total, reserved, ratio)
        if capacity != right:
            yield provider_id, uuid, class_id, capacity, right


def _remove_orphans(tx: WriteTransaction) -> None:
    uuids = sorted(tx.execute(_ORPHANS).scalars())
    for chunk in chunks(uuids):
        among = consumers.c.uuid.in_(chunk)
        # locked in the order of the uuids, which a search for orphans would not keep
        tx.execute(
            select(consumers.c.id).where(among).order_by(consumers.c.uuid).with_for_update()
        ).all()
        # tested again under the lock: a claim may have used the record meanwhile
        tx.execute(sa.delete(consumers).where(among, _IS_ORPHAN))


ProviderRows = dict[int, tuple[str, int | None, int | None]]
"""Provider id -> uuid, parent id, root id."""


def _provider_rows(tx: ReadTransaction) -> ProviderRows:
    return {row[0]: (row[1], row[2], row[3]) for row in tx.execute(_PROVIDERS)}


def _top(providers: ProviderRows, provider_id: int) -> int | None:
    """Return the topmost ancestor; `None` where the parents run in a circle or end nowhere."""
    visited_ids = {provider_id}
    while True:
        parent_id = providers[provider_id][1]
        if parent_id is None:
            return provider_id
        if parent_id in visited_ids or parent_id not in providers:
            return None
        visited_ids.add(parent_id)
        provider_id = parent_id


def _wrong_roots(providers: ProviderRows) -> dict[int, int]:
    return {
        provider_id: top
        for provider_id, (_, _, root_id) in providers.items()
        if (top := _top(providers, provider_id)) is not None and top != root_id
    }
