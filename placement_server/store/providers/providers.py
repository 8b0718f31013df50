"""Resource providers: reading, creating, renaming, moving, labelling and deleting them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, Literal, NamedTuple

import sqlalchemy as sa
from sqlalchemy import bindparam, func, select

from placement_server.store.dialects.batches import among, stamp
from placement_server.store.errors import (
    ParentNotFound,
    ProviderHasAllocations,
    ProviderHasChildren,
    ProviderNameTaken,
    ProviderNotFound,
    ProviderRefused,
    ProviderUuidTaken,
)
from placement_server.store.past_changes import AGGREGATE, NAME, PARENT, PROVIDER, TRAIT
from placement_server.store.providers import inventory_rows
from placement_server.store.providers.filters import find
from placement_server.store.providers.provider_rows import BY_ID, HOLD_PROVIDERS, get
from placement_server.store.records import KEEP, Keep, Provider
from placement_server.store.tables import (
    agent_reports,
    allocations,
    inventories,
    placement_aggregates,
    resource_provider_aggregates,
    resource_provider_traits,
    resource_providers,
    traits,
)
from placement_server.store.transaction import STRUCTURE, AnyRow, LostRace, WriteTransaction, aware

__all__ = [
    "associate", "bump", "create", "delete", "find", "get", "hold", "raise_held", "update",
]  # fmt: skip

_C: Final = resource_providers.c

# With the index of the roots, MySQL would lock that first and then the row, which is not the order
# of the delete of a provider.
_UPDATE: Final = (
    sa.update(resource_providers)
    .with_hint(BY_ID, dialect_name="mysql")
    .with_hint(BY_ID, dialect_name="mariadb")
)
_BUMP: Final = _UPDATE.where(
    _C.id == bindparam("the_id"),
    _C.generation == bindparam("seen"),
    _C.root_provider_id == bindparam("root_id"),
).values(generation=bindparam("next"))
_BUMP_AND_CHANGE: Final = _BUMP.values(updated_at=bindparam("now"))
_TREE_ROWS: Final = (
    select(_C.id, _C.parent_provider_id, _C.root_provider_id)
    .where(among(_C.root_provider_id, "root_ids"))
    .order_by(_C.id)
)
_HOLD: Final = HOLD_PROVIDERS.add_columns(_C.generation, _C.uuid).where(among(_C.id, "ids"))
_CALLED: Final = {
    names.table: select(names.table.c.id, names).where(among(names.table.c.id, "ids"))
    for names in (traits.c.name, placement_aggregates.c.uuid)
}
_CHILDREN: Final = select(sa.exists().where(_C.parent_provider_id == bindparam("the_id")))
_ALLOCATED: Final = select(
    sa.exists().where(allocations.c.resource_provider_id == bindparam("the_id"))
)


class HeldProvider(NamedTuple):
    """A provider that a transaction has locked."""

    root_id: int
    generation: int
    uuid: str


def hold(tx: WriteTransaction, ids: Collection[int]) -> dict[int, HeldProvider]:
    """Lock some providers until the transaction ends, in the order in which claims do.

    :returns: those that exist, by id.
    """
    rows = tx.execute_among(_HOLD, "ids", ids)
    return {
        number: HeldProvider(root_id or number, generation, uuid)
        for number, root_id, generation, uuid in rows
    }


def raise_held(tx: WriteTransaction, increments: Mapping[int, int]) -> None:
    """Raise the generations of providers that are locked, by so much each."""
    for by in sorted({*increments.values()} - {0}):
        tx.count_among(
            f"UPDATE resource_providers SET generation = generation + {by}, "
            f"updated_at = {tx.batches.moment} WHERE id ",
            (number for number in increments if increments[number] == by),
            stamp(tx.now),
        )


def bump(tx: WriteTransaction, provider: Provider, *, by: int = 1) -> None:
    """Raise the generation, provided that the provider is as it was read.

    :param by: by how much; with 0 the provider is locked and nothing of it changes.
    :raises LostRace: the provider changed, and the whole transaction is retried.
    """
    values: dict[str, object] = {
        "the_id": provider.id,
        "seen": provider.generation,
        "root_id": provider.root_id,
        "next": provider.generation + by,
    }
    if by:
        values["now"] = tx.now
    changed_rows = tx.execute(_BUMP_AND_CHANGE if by else _BUMP, values).rowcount
    if changed_rows != 1:
        raise LostRace(f"Provider {provider.uuid} changed meanwhile.", uuids=[provider.uuid])


def create(
    tx: WriteTransaction, *, uuid: str, name: str, parent_uuid: str | None = None
) -> Provider:
    """Create a provider of generation 0, a root unless it has a parent.

    :raises ProviderRefused: the name is empty, or the parent is itself or does not exist.
    :raises ProviderUuidTaken: another provider has the uuid.
    :raises ProviderNameTaken: another provider has the name.
    """
    if not name:
        raise ProviderRefused("name is required")
    if parent_uuid is not None and parent_uuid == uuid:
        raise ProviderRefused(
            "parent provider UUID cannot be same as UUID. "
            "Please set parent provider UUID to None if there is no parent."
        )
    parent = None if parent_uuid is None else _hold_parent(tx, parent_uuid)
    same = tx.execute(select(_C.uuid).where(sa.or_(_C.uuid == uuid, _C.name == name))).scalars()
    uuids = same.all()
    if uuid in uuids:
        raise ProviderUuidTaken(uuid)
    if uuids:
        raise ProviderNameTaken(name)
    result = tx.execute(
        sa.insert(resource_providers).values(
            uuid=uuid,
            name=name,
            generation=0,
            parent_provider_id=parent and parent.id,
            root_provider_id=parent and parent.root_id,
            created_at=tx.now,
            updated_at=tx.now,
        )
    )
    key = result.inserted_primary_key
    assert key is not None, "one row was inserted into a table with a key"
    provider_id = int(key[0])
    if parent is None:
        tx.execute(
            sa.update(resource_providers)
            .where(_C.id == provider_id)
            .values(root_provider_id=provider_id)
        )
    root_id = provider_id if parent is None else parent.root_id
    tx.touch([root_id], STRUCTURE)
    if tx.past is not None:
        tx.past.know(provider_id, uuid, root_id)
        tx.past.add(provider_id, PROVIDER, name, 0, 1)
    now = aware(tx.now)
    above, root_uuid = (None, uuid) if parent is None else (parent.uuid, parent.root_uuid)
    return Provider(provider_id, uuid, name, 0, above, root_uuid, now, now, root_id)


def _parent(tx: WriteTransaction, uuid: str) -> Provider:
    try:
        return get(tx, uuid)
    except ProviderNotFound as error:
        raise ParentNotFound from error


def _hold_parent(tx: WriteTransaction, uuid: str) -> Provider:
    """Lock the parent and its root: neither can move or be deleted until the transaction ends."""
    parent = _parent(tx, uuid)
    ids = {parent.id, parent.root_id}
    held_providers = hold(tx, ids)
    if {key for key in held_providers if held_providers[key].root_id == parent.root_id} != ids:
        raise LostRace(f"Provider {uuid} moved meanwhile.", uuids=[uuid])
    return parent


def update(
    tx: WriteTransaction,
    uuid: str,
    *,
    name: str,
    parent_uuid: str | Literal[Keep.KEEP] | None = KEEP,
    reparenting_allowed: bool,
) -> Provider:
    """Rename a provider, and move it with its whole subtree under another parent, or out.

    The generation stays.

    :param reparenting_allowed: false for old microversions, which may only give a parent to a
        provider that has none.
    :raises ProviderNotFound: the provider does not exist.
    :raises ProviderNameTaken: another provider has the name.
    :raises ParentNotFound: the parent does not exist.
    :raises ProviderRefused: it has a parent that it must keep, or the new one is in its subtree.
    """
    provider = get(tx, uuid)
    values: dict[str, object] = {"name": name}
    if parent_uuid is not KEEP and parent_uuid != provider.parent_uuid:
        values["parent_provider_id"] = _move(tx, provider, parent_uuid, reparenting_allowed)
        values["updated_at"] = tx.now
    if name != provider.name:
        values["updated_at"] = tx.now
        other = tx.execute(select(_C.id).where(_C.name == name, _C.id != provider.id)).first()
        if other is not None:
            raise ProviderNameTaken(name)
    changed_rows = tx.execute(
        sa.update(resource_providers).where(_C.id == provider.id).values(**values)
    ).rowcount
    if changed_rows != 1:
        raise LostRace(f"Provider {uuid} was deleted meanwhile.", uuids=[uuid])
    tx.touch([provider.root_id], STRUCTURE)
    if tx.past is not None:
        new_parent = provider.parent_uuid if parent_uuid is KEEP else parent_uuid
        tx.past.add(provider.id, NAME, "", provider.name, name)
        tx.past.add(provider.id, PARENT, "", provider.parent_uuid, new_parent)
    return get(tx, uuid)


def _move(
    tx: WriteTransaction, provider: Provider, parent_uuid: str | None, may_move: bool
) -> int | None:
    """Give the provider's subtree its new root, and return the id of the new parent."""
    if parent_uuid is None:
        if not may_move:
            raise ProviderRefused("un-parenting a provider is not currently allowed.")
        new_parent_id, new_root_id = None, provider.id
    else:
        new_parent = _parent(tx, parent_uuid)
        new_parent_id, new_root_id = new_parent.id, new_parent.root_id
        if provider.parent_uuid is not None and not may_move:
            raise ProviderRefused("re-parenting a provider is not currently allowed.")
    rows = _hold_trees(tx, provider, new_root_id)
    roots = {row.id: row.root_provider_id for row in rows}
    has_moved = roots.get(provider.id) != provider.root_id
    if has_moved or (new_parent_id is not None and roots.get(new_parent_id) != new_root_id):
        raise LostRace(
            f"Provider {provider.uuid} or its new parent moved meanwhile.", uuids=[provider.uuid]
        )
    children: dict[int, list[int]] = {}
    for row in rows:
        children.setdefault(row.parent_provider_id, []).append(row.id)
    subtree = [provider.id]
    for provider_id in subtree:
        # a damaged tree may run in a circle; taking it apart is how it is mended
        subtree.extend(child for child in children.get(provider_id, ()) if child not in subtree)
    if new_parent_id in subtree:
        raise ProviderRefused("creating loop in the provider tree is not allowed.")
    # Every provider shows the root, so every one that gets a new one has changed.
    tx.execute(
        _UPDATE.where(_C.id.in_(subtree), _C.root_provider_id != new_root_id).values(
            root_provider_id=new_root_id, updated_at=tx.now
        )
    )
    tx.touch([provider.root_id, new_root_id], STRUCTURE)
    if provider.id == provider.root_id != new_root_id:
        tx.end_tree(provider.id, provider.uuid)
    return new_parent_id


def _hold_trees(tx: WriteTransaction, provider: Provider, new_root_id: int) -> Sequence[AnyRow]:
    """Lock the provider's tree and its new one, and return the rows of both.

    Two moves at the same time could close a loop that neither sees: both trees are locked whole,
    in the order in which claims lock providers, and read again: another writer may have made a
    child, or moved one in, before all were locked.
    """
    trees = {"root_ids": sorted({provider.root_id, new_root_id})}
    ids = {row.id for row in tx.execute(_TREE_ROWS, trees)}
    hold(tx, ids)
    rows = tx.execute(_TREE_ROWS, trees).all()
    if not {row.id for row in rows} <= ids:
        raise LostRace(
            f"The tree of provider {provider.uuid} or its new one grew meanwhile.",
            uuids=[provider.uuid],
        )
    return rows


def delete(tx: WriteTransaction, uuid: str) -> None:
    """Delete a provider with its inventories and its trait and aggregate associations.

    :raises ProviderNotFound: it does not exist.
    :raises ProviderHasChildren: it has children.
    :raises ProviderHasAllocations: it has allocations.
    """
    # A claim locks the inventories first and the provider last; so while the inventories of a
    # provider are locked here, no claim on it is in progress.
    inventory_rows.hold(tx, uuid)
    provider = get(tx, uuid)
    key = {"the_id": provider.id}
    if tx.execute(_CHILDREN, key).scalar():
        raise ProviderHasChildren(uuid)
    if tx.execute(_ALLOCATED, key).scalar():
        raise ProviderHasAllocations(uuid)
    # A move does not raise the generation, but then another tree loses the provider.
    unchanged_row = tx.execute(
        select(_C.id)
        .where(
            _C.id == provider.id,
            _C.generation == provider.generation,
            func.coalesce(_C.root_provider_id, _C.id) == provider.root_id,
        )
        .with_for_update()
    ).first()
    if unchanged_row is None:
        raise LostRace(f"Provider {uuid} changed meanwhile.", uuids=[uuid])
    for table in (inventories, resource_provider_traits, resource_provider_aggregates):
        tx.execute(sa.delete(table).where(table.c.resource_provider_id == provider.id))
    if tx.batches.family == "mysql":
        # InnoDB refuses to delete a row that refers to itself
        tx.execute(
            sa.update(resource_providers).where(_C.id == provider.id).values(root_provider_id=None)
        )
    tx.execute(sa.delete(resource_providers).where(_C.id == provider.id))
    tx.touch([provider.root_id], STRUCTURE)
    if tx.past is not None:
        tx.past.know(provider.id, uuid, provider.root_id)
        tx.past.add(provider.id, PROVIDER, provider.name or "", 1, 0)
    if provider.id == provider.root_id:
        tx.end_tree(provider.id, provider.uuid)
        tx.execute(
            sa.delete(agent_reports).where(agent_reports.c.root_provider_uuid == provider.uuid)
        )


def associate(
    tx: WriteTransaction,
    others: sa.Column[int],
    names: sa.Column[str],
    provider: Provider,
    old_ids: AbstractSet[int],
    new_ids: AbstractSet[int],
) -> None:
    """End and begin associations, so that a provider with the old ones has the new ones.

    :param others: the column with the ids of traits or aggregates, in the table of associations.
    :param names: the column with what these are called, in the table of their own.
    """
    table = others.table
    if tx.past is not None and old_ids != new_ids:
        what = TRAIT if names.table is traits else AGGREGATE
        for other_id, name in tx.execute_among(_CALLED[names.table], "ids", old_ids ^ new_ids):
            tx.past.add(provider.id, what, name, int(other_id in old_ids), int(other_id in new_ids))
    if old_ids - new_ids:
        tx.execute(
            sa.delete(table).where(
                table.c.resource_provider_id == provider.id, others.in_(sorted(old_ids - new_ids))
            )
        )
    if new_ids - old_ids:
        tx.execute(
            sa.insert(table),
            [
                {
                    "resource_provider_id": provider.id,
                    others.name: other_id,
                    "created_at": tx.now,
                    "updated_at": tx.now,
                }
                for other_id in sorted(new_ids - old_ids)
            ],
        )
