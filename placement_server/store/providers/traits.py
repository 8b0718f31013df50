"""Traits, and which providers have them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import bindparam, select

from placement_server.store.errors import (
    ConcurrentUpdate,
    StandardName,
    TraitInUse,
    TraitNotFound,
)
from placement_server.store.providers import provider_rows
from placement_server.store.providers.providers import bump
from placement_server.store.records import NameRow, Provider, TraitRow
from placement_server.store.schema.names import is_standard, trait_ids
from placement_server.store.tables import resource_provider_traits, traits
from placement_server.store.transactions.transaction import (
    STRUCTURE,
    AnyRow,
    ReadTransaction,
    WriteTransaction,
    aware,
)

_T: Final = traits.c
_LINKS: Final = resource_provider_traits

_ROWS: Final = select(_T.id, _T.name, _T.created_at, _T.updated_at)
_ONE: Final = _ROWS.where(_T.name == bindparam("name"))
_OF_PROVIDER: Final = provider_rows.select_with(
    _LINKS.join(traits, _LINKS.c.trait_id == _T.id),
    _LINKS.c.resource_provider_id,
    *_ROWS.selected_columns,
).order_by(_T.id)
_LINKED: Final = select(_LINKS.c.trait_id).where(
    _LINKS.c.resource_provider_id == bindparam("provider_id")
)


def _trait(row: AnyRow | tuple[Any, ...]) -> TraitRow:
    return NameRow(row[0], row[1], aware(row[3] or row[2]))


def list_names(
    tx: ReadTransaction,
    *,
    names: Collection[str] | None = None,
    prefix: str | None = None,
    associated: bool | None = None,
) -> list[TraitRow]:
    """Traits in the order of their ids, those that satisfy every filter given.

    ``prefix`` is literal and case counts.
    """
    statement = _ROWS
    if associated is not None:
        linked = _T.id.in_(select(_LINKS.c.trait_id))
        statement = statement.where(linked if associated else ~linked)
    if names is None:
        rows = tx.execute(statement.order_by(_T.id)).all()
    else:
        named = statement.where(_T.name.in_(bindparam("names", expanding=True)))
        rows = sorted(tx.execute_among(named, "names", names))
    # SQL's LIKE has wildcards, and ignores case on some databases
    return [_trait(row) for row in rows if prefix is None or row[1].startswith(prefix)]


def get(tx: ReadTransaction, name: str) -> TraitRow:
    """One trait. Raises TraitNotFound."""
    row = tx.execute(_ONE, {"name": name}).first()
    if row is None:
        raise TraitNotFound([name])
    return _trait(row)


def ensure(tx: WriteTransaction, name: str) -> tuple[TraitRow, bool]:
    """The trait, and whether it had to be created."""
    row = tx.execute(_ONE, {"name": name}).first()
    if row is not None:
        return _trait(row), False
    tx.execute(sa.insert(traits).values(name=name, created_at=tx.now, updated_at=tx.now))
    tx.touch_names()
    return get(tx, name), True


def delete(tx: WriteTransaction, name: str) -> None:
    """Delete a custom trait. Raises TraitNotFound, StandardName, TraitInUse."""
    trait = get(tx, name)
    if is_standard(name):
        raise StandardName(name)
    # a provider that gets the trait now holds a share of its row
    tx.execute(select(_T.id).where(_T.id == trait.id).with_for_update())
    if tx.execute(select(_LINKS.c.trait_id).where(_LINKS.c.trait_id == trait.id).limit(1)).first():
        raise TraitInUse(name)
    tx.execute(sa.delete(traits).where(_T.id == trait.id))
    tx.touch_names()


def of_provider(tx: ReadTransaction, uuid: str) -> tuple[Provider, list[TraitRow]]:
    """The provider and its traits. Raises ProviderNotFound."""
    provider, rows = provider_rows.get_with(tx, _OF_PROVIDER, uuid)
    return provider, [_trait(row) for row in rows]


def replace_of_provider(
    tx: WriteTransaction, uuid: str, names: Collection[str], *, generation: int
) -> tuple[Provider, list[TraitRow]]:
    """Make these the traits of the provider; the generation rises if that changes anything.

    Raises ProviderNotFound, ConcurrentUpdate when ``generation`` is not the current one,
    TraitNotFound with all unknown names.
    """
    provider = provider_rows.get(tx, uuid)
    if provider.generation != generation:
        raise ConcurrentUpdate(
            "Resource provider's generation already changed. Please update the generation and "
            "try again."
        )
    wanted = set(trait_ids(tx, names).values())
    _set(tx, provider, wanted)
    return of_provider(tx, uuid)


def delete_of_provider(tx: WriteTransaction, uuid: str) -> None:
    """Take all traits from the provider; the generation rises if it had any."""
    _set(tx, provider_rows.get(tx, uuid), set())


def _set(tx: WriteTransaction, provider: Provider, wanted: set[int]) -> None:
    present = set(tx.execute(_LINKED, {"provider_id": provider.id}).scalars())
    if present == wanted:
        return
    bump(tx, provider)
    if present - wanted:
        tx.execute(
            sa.delete(_LINKS).where(
                _LINKS.c.resource_provider_id == provider.id,
                _LINKS.c.trait_id.in_(sorted(present - wanted)),
            )
        )
    if wanted - present:
        tx.execute(
            sa.insert(_LINKS),
            [
                {
                    "resource_provider_id": provider.id,
                    "trait_id": trait_id,
                    "created_at": tx.now,
                    "updated_at": tx.now,
                }
                for trait_id in sorted(wanted - present)
            ],
        )
    tx.touch([provider.root_id], STRUCTURE)
