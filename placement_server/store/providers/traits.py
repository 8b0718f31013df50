"""Traits, and the traits of providers."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import sqlalchemy as sa
from sqlalchemy import bindparam, select

from placement_server.store.dialects.batches import among, chunks
from placement_server.store.errors import NameInUse, StandardName, TraitNotFound
from placement_server.store.providers import provider_rows
from placement_server.store.providers.providers import associate, bump
from placement_server.store.records import NameRow, Provider
from placement_server.store.schema.names import is_standard, name_row, trait_ids
from placement_server.store.tables import resource_provider_traits, traits
from placement_server.store.transaction import (
    STRUCTURE,
    ReadTransaction,
    WriteTransaction,
)

_T: Final = traits.c
_LINKS: Final = resource_provider_traits

_ROWS: Final = select(_T.id, _T.name, _T.created_at, _T.updated_at)
_ONE: Final = _ROWS.where(_T.name == bindparam("name"))
_OF_PROVIDER: Final = provider_rows.select_with(
    _LINKS.join(traits, _LINKS.c.trait_id == _T.id),
    _LINKS.c.resource_provider_id,
    *_ROWS.selected_columns,
    order_by=_T.id,
)
_LINKED: Final = select(_LINKS.c.trait_id).where(
    _LINKS.c.resource_provider_id == bindparam("provider_id")
)


def list_names(
    tx: ReadTransaction,
    *,
    names: Collection[str] | None = None,
    prefix: str | None = None,
    associated: bool | None = None,
) -> list[NameRow]:
    """Return the traits that satisfy every filter given, in the order of their ids.

    :param prefix: literal and case-sensitive.
    :param associated: whether a provider has the trait.
    """
    statement = _ROWS
    if associated is not None:
        is_linked = _T.id.in_(select(_LINKS.c.trait_id))
        statement = statement.where(is_linked if associated else ~is_linked)
    if names is None:
        rows = tx.execute(statement.order_by(_T.id)).all()
    else:
        by_name = statement.where(among(_T.name, "names"))
        parts = chunks(sorted(set(names)))
        rows = sorted(row for part in parts for row in tx.execute(by_name, {"names": part}))
    # SQL's LIKE has wildcards, and ignores case on some databases
    return [name_row(row) for row in rows if prefix is None or row[1].startswith(prefix)]


def get(tx: ReadTransaction, name: str) -> NameRow:
    """Return one trait.

    :raises TraitNotFound: it does not exist.
    """
    row = tx.execute(_ONE, {"name": name}).first()
    if row is None:
        raise TraitNotFound([name])
    return name_row(row)


def ensure(tx: WriteTransaction, name: str) -> tuple[NameRow, bool]:
    """Return the trait, and whether it had to be created."""
    row = tx.execute(_ONE, {"name": name}).first()
    if row is not None:
        return name_row(row), False
    tx.execute(sa.insert(traits).values(name=name, created_at=tx.now, updated_at=tx.now))
    tx.touch_names()
    return get(tx, name), True


def delete(tx: WriteTransaction, name: str) -> None:
    """Delete a custom trait.

    :raises TraitNotFound: it does not exist.
    :raises StandardName: it is a standard trait.
    :raises NameInUse: a provider has it.
    """
    trait = get(tx, name)
    if is_standard(name):
        raise StandardName(name)
    # a provider that gets the trait now has a share lock of its row
    tx.execute(select(_T.id).where(_T.id == trait.id).with_for_update())
    if tx.execute(select(_LINKS.c.trait_id).where(_LINKS.c.trait_id == trait.id).limit(1)).first():
        raise NameInUse(name)
    tx.execute(sa.delete(traits).where(_T.id == trait.id))
    tx.touch_names()


def of_provider(tx: ReadTransaction, uuid: str) -> tuple[int, list[NameRow]]:
    """Return the generation of the provider and its traits.

    :raises ProviderNotFound: it does not exist.
    """
    generation, rows = provider_rows.get_with(tx, _OF_PROVIDER, uuid)
    return generation, [name_row(row) for row in rows]


def replace_of_provider(
    tx: WriteTransaction, uuid: str, names: Collection[str], *, generation: int
) -> tuple[int, list[NameRow]]:
    """Make these the traits of the provider; the generation rises if that changes anything.

    :raises ProviderNotFound: the provider does not exist.
    :raises ConcurrentUpdate: `generation` is not the current one.
    :raises TraitNotFound: traits do not exist; it has all of these.
    """
    provider = provider_rows.get(tx, uuid)
    provider_rows.require_generation(provider, generation)
    _set(tx, provider, set(trait_ids(tx, names).values()))
    return of_provider(tx, uuid)


def delete_of_provider(tx: WriteTransaction, uuid: str) -> None:
    """Take all traits from the provider; the generation rises if it had any.

    :raises ProviderNotFound: it does not exist.
    """
    _set(tx, provider_rows.get(tx, uuid), set())


def _set(tx: WriteTransaction, provider: Provider, new_ids: set[int]) -> None:
    old_ids = set(tx.execute(_LINKED, {"provider_id": provider.id}).scalars())
    if old_ids == new_ids:
        return
    bump(tx, provider)
    associate(tx, _LINKS.c.trait_id, _T.name, provider, old_ids, new_ids)
    tx.touch([provider.root_id], STRUCTURE)
