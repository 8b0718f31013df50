"""Reads of resource providers, with the uuids of parent and root."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from sqlalchemy import ColumnElement, FromClause, Select, bindparam, select

from placement_server.store.dialects.batches import among
from placement_server.store.dialects.plain import PlainSelect
from placement_server.store.errors import ConcurrentUpdate, ProviderNotFound
from placement_server.store.records import Provider
from placement_server.store.tables import resource_providers
from placement_server.store.transaction import AnyRow, ReadTransaction, aware

AnySelect: TypeAlias = "Select[*tuple[Any, ...]]"

PROVIDER: Final = resource_providers.alias("p")
_PARENT: Final = resource_providers.alias("parent")
_ROOT: Final = resource_providers.alias("root")

# Outer joins: in a database that still needs its data migrated a provider may lack a root.
SELECT_PROVIDERS: Final = select(
    PROVIDER.c.id,
    PROVIDER.c.uuid,
    PROVIDER.c.name,
    PROVIDER.c.generation,
    _PARENT.c.uuid,
    _ROOT.c.uuid,
    PROVIDER.c.created_at,
    PROVIDER.c.updated_at,
    PROVIDER.c.root_provider_id,
).select_from(
    PROVIDER.outerjoin(_PARENT, _PARENT.c.id == PROVIDER.c.parent_provider_id).outerjoin(
        _ROOT, _ROOT.c.id == PROVIDER.c.root_provider_id
    )
)
_NAMES: Final = select(resource_providers.c.uuid, resource_providers.c.name).where(
    among(resource_providers.c.uuid, "uuids")
)
_BY_UUID: Final = PlainSelect(SELECT_PROVIDERS.where(PROVIDER.c.uuid == bindparam("uuid")))
# MySQL must find them by their ids, to lock them in that order and nothing else before.
BY_ID: Final = "FORCE INDEX (PRIMARY)"
HOLD_PROVIDERS: Final = (
    select(resource_providers.c.id, resource_providers.c.root_provider_id)
    .order_by(resource_providers.c.id)
    .with_hint(resource_providers, BY_ID, "mysql")
    .with_hint(resource_providers, BY_ID, "mariadb")
    .with_for_update(key_share=True)
)
"""Locks all providers, or those of an added condition, in the order in which claims do."""


def provider_of(row: AnyRow | tuple[Any, ...]) -> Provider:
    """Return the provider in a row of SELECT_PROVIDERS."""
    provider_id, uuid, name, generation, parent, root, created, updated, root_id = row
    return Provider(
        provider_id,
        uuid,
        name,
        generation,
        parent,
        root or uuid,
        aware(created),
        None if updated is None else aware(updated),
        provider_id if root_id is None else root_id,
    )


def get(tx: ReadTransaction, uuid: str) -> Provider:
    """Return the provider with exactly this uuid.

    :raises ProviderNotFound: it does not exist.
    """
    rows = _BY_UUID.rows(tx.connection, {"uuid": uuid})
    if not rows:
        raise ProviderNotFound(uuid)
    return provider_of(rows[0])


def names(tx: ReadTransaction, uuids: Sequence[str]) -> dict[str, str]:
    """Return the names of some providers by uuid; those that do not exist are left out."""
    return dict(tx.execute_among(_NAMES, "uuids", uuids))


def require_generation(provider: Provider, generation: int) -> None:
    """Refuse to change a provider that is not as its writer has read it.

    :raises ConcurrentUpdate: `generation` is not the current one.
    """
    if provider.generation != generation:
        raise ConcurrentUpdate(
            f"Provider {provider.uuid} cannot be changed: it has generation {provider.generation}, "
            f"the request was made for {generation}; read it again.",
            uuids=[provider.uuid],
        )


def select_with(
    source: FromClause,
    link: ColumnElement[int],
    *columns: ColumnElement[Any],
    order_by: ColumnElement[int],
) -> PlainSelect:
    """Return the statement for `get_with`: columns of `source`, joined by `link`.

    The first column must not be nullable.
    """
    return PlainSelect(
        select(PROVIDER.c.generation, *columns)
        .select_from(PROVIDER.outerjoin(source, link == PROVIDER.c.id))
        .where(PROVIDER.c.uuid == bindparam("uuid"))
        .order_by(order_by)
    )


def get_with(
    tx: ReadTransaction, statement: PlainSelect, uuid: str
) -> tuple[int, list[tuple[Any, ...]]]:
    """Return the generation of a provider and the rows that belong to it, read in one statement.

    :raises ProviderNotFound: it does not exist.
    """
    rows = statement.rows(tx.connection, {"uuid": uuid})
    if not rows:
        raise ProviderNotFound(uuid)
    return rows[0][0], [row[1:] for row in rows if row[1] is not None]
