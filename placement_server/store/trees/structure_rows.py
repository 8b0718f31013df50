"""Writes of the providers of a tree and of what they have, a statement for many at a time."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import sqlalchemy as sa
from sqlalchemy import bindparam, select

from placement_server.store.dialects import Insertion, chunks
from placement_server.store.tables import (
    inventories,
    resource_provider_aggregates,
    resource_provider_traits,
    resource_providers,
)
from placement_server.store.transactions.transaction import WriteTransaction
from placement_server.store.trees.tree import TreeProvider
from placement_server.store.trees.tree_write import ProviderWrite

_P: Final = resource_providers.c
_COLUMNS: Final = (
    ("uuid", "text"),
    ("name", "text"),
    ("generation", "int"),
    ("parent_provider_id", "int"),
    ("root_provider_id", "int"),
)
#: Levels of new providers that are inserted one by one, each with the ids of the one above. What is
#: deeper is inserted at once and then given its parents: a chain of thousands has as many levels.
_LEVELS: Final = 8
_ADOPTED_AT_ONCE: Final = 1000

_IDS: Final = select(_P.uuid, _P.id).where(_P.uuid.in_(bindparam("uuids", expanding=True)))
_NAMED: Final = select(_P.uuid, _P.name).where(_P.name.in_(bindparam("names", expanding=True)))
_BY_ID: Final = sa.update(resource_providers).where(_P.id == bindparam("the_id"))
_CHANGE: Final = _BY_ID.values(
    name=bindparam("new_name"),
    parent_provider_id=bindparam("parent_id"),
    generation=_P.generation + 1,
    updated_at=bindparam("now"),
)
_RENAME: Final = _BY_ID.values(name=bindparam("new_name"))
_AMONG: Final = _P.id.in_(bindparam("ids", expanding=True))
_REROOT: Final = (
    sa.update(resource_providers)
    .where(_AMONG)
    .values(root_provider_id=bindparam("root_id"), updated_at=bindparam("now"))
)
_UNLINK: Final = (
    sa.update(resource_providers)
    .where(_AMONG)
    .values(root_provider_id=None, parent_provider_id=None)
)
_DELETE: Final = sa.delete(resource_providers).where(_AMONG)
_DELETE_OF: Final = tuple(
    sa.delete(table).where(table.c.resource_provider_id.in_(bindparam("ids", expanding=True)))
    for table in (inventories, resource_provider_traits, resource_provider_aggregates)
)
_LINKS: Final = {"trait_id": resource_provider_traits, "aggregate_id": resource_provider_aggregates}
_UNTIE: Final = {
    column: sa.delete(table).where(
        table.c.resource_provider_id == bindparam("provider_id"),
        table.c[column] == bindparam("other_id"),
    )
    for column, table in _LINKS.items()
}


def holders_of_names(tx: WriteTransaction, names: Collection[str]) -> list[tuple[str, str]]:
    """Return the providers that have any of these names: uuid and name."""
    return [(row[0], row[1]) for row in tx.execute_among(_NAMED, "names", names)]


def free_names(tx: WriteTransaction, providers: Collection[TreeProvider]) -> None:
    """Give providers other names for the moment, so that others can have theirs."""
    if providers:
        tx.execute(
            _RENAME,
            [
                {"the_id": provider.id, "new_name": f"renaming {provider.uuid}"}
                for provider in sorted(providers, key=_id)
            ],
        )


def create(
    tx: WriteTransaction,
    levels: Sequence[Sequence[ProviderWrite]],
    root_id: int | None,
    ids: dict[str, int],
) -> int:
    """Insert new providers; return the id of the root, which may be one of them.

    :param levels: from the root down.
    :param ids: the ids of all providers by uuid; those of the new ones are added.
    """
    for level in levels[:_LEVELS]:
        _insert(tx, level, root_id, ids)
        if root_id is None:
            (root,) = level
            root_id = ids[root.uuid]
            tx.execute(_REROOT, {"ids": [root_id], "root_id": root_id, "now": tx.now})
    assert root_id is not None, "a tree has a root"
    deeper = [target for level in levels[_LEVELS:] for target in level]
    if deeper:
        _insert(tx, deeper, root_id, ids)
        for targets in chunks(deeper, _ADOPTED_AT_ONCE):
            parents = {ids[target.uuid]: ids[target.parent_uuid or ""] for target in targets}
            tx.execute(
                sa.update(resource_providers)
                .where(_P.id.in_(sorted(parents)))
                .values(parent_provider_id=sa.case(parents, value=_P.id))
            )
    return root_id


def _insert(
    tx: WriteTransaction,
    targets: Sequence[ProviderWrite],
    root_id: int | None,
    ids: dict[str, int],
) -> None:
    """Insert providers, with their parents as far as those are known."""
    rows = [
        (target.uuid, target.name, 0, ids.get(target.parent_uuid or ""), root_id)
        for target in targets
    ]
    insertion = Insertion("resource_providers", _COLUMNS, rows)
    tx.batches.insert(tx.connection, [insertion], tx.now)
    ids.update(tx.execute_among(_IDS, "uuids", [target.uuid for target in targets]))


def change(
    tx: WriteTransaction,
    providers: Collection[TreeProvider],
    renamed_providers: Mapping[str, ProviderWrite],
    ids: Mapping[str, int],
) -> None:
    """Raise the generations of existing providers, and give the renamed name and parent."""
    rows = []
    for provider in sorted(providers, key=_id):
        target = renamed_providers.get(provider.uuid)
        parent_id, name = provider.parent_id, provider.name
        if target is not None:
            parent_id = None if target.parent_uuid is None else ids[target.parent_uuid]
            name = target.name
        rows.append(
            {"the_id": provider.id, "new_name": name, "parent_id": parent_id, "now": tx.now}
        )
    if rows:
        tx.execute(_CHANGE, rows)


def reroot(tx: WriteTransaction, provider_ids: Collection[int], root_id: int) -> None:
    """Give providers another root."""
    for ids in chunks(sorted(provider_ids)):
        tx.execute(_REROOT, {"ids": ids, "root_id": root_id, "now": tx.now})


def delete(tx: WriteTransaction, provider_ids: Collection[int]) -> None:
    """Delete providers with their inventories, traits and aggregates."""
    for ids in chunks(sorted(provider_ids)):
        for statement in _DELETE_OF:
            tx.execute(statement, {"ids": ids})
        # Some databases refuse to delete a row before those that refer to it, or to itself.
        tx.execute(_UNLINK, {"ids": ids})
    for ids in chunks(sorted(provider_ids)):
        tx.execute(_DELETE, {"ids": ids})


def link(
    tx: WriteTransaction,
    column: str,
    added_links: Collection[tuple[int, int]],
    removed_links: Sequence[tuple[int, int]],
) -> None:
    """Associate providers with traits or aggregates, and end associations.

    :param column: ``trait_id`` or ``aggregate_id``.
    :param added_links: pairs of provider id and the other id, as ``removed_links`` is.
    """
    if removed_links:
        tx.execute(
            _UNTIE[column],
            [
                {"provider_id": provider_id, "other_id": other}
                for provider_id, other in removed_links
            ],
        )
    columns = (("resource_provider_id", "int"), (column, "int"))
    rows = Insertion(_LINKS[column].name, columns, sorted(added_links))
    tx.batches.insert(tx.connection, [rows], tx.now)


def _id(provider: TreeProvider) -> int:
    return provider.id
