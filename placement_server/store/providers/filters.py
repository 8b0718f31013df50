"""The search for resource providers by their identity, traits, aggregates and free resources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

from sqlalchemy import ColumnElement, and_, bindparam, select, true

from placement_server.store.dialects.batches import chunks
from placement_server.store.errors import ResourceClassNotFound, TraitNotFound
from placement_server.store.providers.provider_rows import (
    PROVIDER,
    SELECT_PROVIDERS,
    AnySelect,
    provider_of,
)
from placement_server.store.records import Provider
from placement_server.store.schema.names import class_ids, trait_ids
from placement_server.store.tables import (
    inventories,
    placement_aggregates,
    resource_provider_aggregates,
    resource_provider_traits,
    resource_providers,
)
from placement_server.store.transaction import AnyRow, ReadTransaction

Condition = ColumnElement[bool]

_JOINED: Final = 8
"""The most conditions that the database plans as one join."""

_ROOT_ID: Final = select(resource_providers.c.root_provider_id).where(
    resource_providers.c.uuid == bindparam("in_tree")
)
_IDENTITY: Final[Mapping[str, Condition]] = {
    "name": PROVIDER.c.name == bindparam("name"),
    "uuid": PROVIDER.c.uuid == bindparam("uuid"),
    "in_tree": PROVIDER.c.root_provider_id == _ROOT_ID.scalar_subquery(),
}


@cache
def _identified_by(names: tuple[str, ...]) -> AnySelect:
    return SELECT_PROVIDERS.where(*(_IDENTITY[name] for name in names))


def find(
    tx: ReadTransaction,
    *,
    ids: Sequence[int] | None = None,
    name: str | None = None,
    uuid: str | None = None,
    in_tree: str | None = None,
    resources: Mapping[str, int] | None = None,
    required: Sequence[frozenset[str]] = (),
    forbidden: frozenset[str] = frozenset(),
    member_of: Sequence[frozenset[str]] = (),
    forbidden_aggregates: frozenset[str] = frozenset(),
) -> list[Provider]:
    """Return the providers that satisfy every filter by themselves, without trees and sharing.

    Unknown names are errors only when the filters before them leave any provider. By identity
    alone it is one statement, composed once: agents read their tree all the time.

    :param ids: search among these providers only.
    :param required: sets of traits; the provider must have one of each set.
    :param member_of: sets of aggregates; the provider must be in one of each set.
    :raises TraitNotFound: for names in `required`, then in `forbidden`.
    :raises ResourceClassNotFound: for names in `resources`.
    """
    sought = {"name": name or None, "uuid": uuid, "in_tree": in_tree}
    identity = {attribute: value for attribute, value in sought.items() if value is not None}
    others = (required, forbidden, member_of, forbidden_aggregates, resources)
    if ids is None and not any(others):
        rows = tx.execute(_identified_by(tuple(identity)), identity).all()
        return [provider_of(row) for row in rows]
    conditions = [_IDENTITY[attribute] for attribute in identity]
    if ids is not None:
        conditions.append(PROVIDER.c.id.in_(ids))
    if (
        in_tree is not None
        and (required or forbidden or resources)
        and tx.execute(_ROOT_ID, identity).scalar() is None
    ):
        # before any error about unknown names
        return []

    required_ids = trait_ids(tx, frozenset().union(*required))
    has_required = [_has_trait([required_ids[name] for name in group]) for group in required]
    is_member = [_in_aggregate(group) for group in member_of]
    try:
        forbidden_ids = trait_ids(tx, forbidden)
        classes = class_ids(tx, list(resources or ()))
    except TraitNotFound:
        if _exclude_all(tx, has_required):
            return []
        raise
    except ResourceClassNotFound:
        if _exclude_all(tx, has_required) or _exclude_all(tx, is_member):
            return []
        raise

    conditions += has_required
    if forbidden_ids:
        conditions.append(~_has_trait(list(forbidden_ids.values())))
    conditions += is_member
    if forbidden_aggregates:
        conditions.append(~_in_aggregate(forbidden_aggregates))
    conditions += [_fits(classes[rc], amount) for rc, amount in (resources or {}).items()]
    return [provider_of(row) for row in _select(tx, SELECT_PROVIDERS, conditions, identity)]


def _exclude_all(tx: ReadTransaction, conditions: Sequence[Condition]) -> bool:
    """Return whether no provider meets the conditions; without any, all do."""
    return bool(conditions) and not _select(tx, select(PROVIDER.c.id).limit(1), conditions)


def _select(
    tx: ReadTransaction,
    statement: AnySelect,
    conditions: Sequence[Condition],
    identity: Mapping[str, str] | None = None,
) -> Sequence[AnyRow]:
    """Return the rows that meet all conditions, of which a query may have a thousand.

    PostgreSQL and MySQL make a join of each subquery and try the orders of the joins, which takes
    minutes and gigabytes for many; not so for a subquery inside a test for truth. SQLite takes at
    most a thousand levels of AND.
    """
    if len(conditions) <= _JOINED:
        return tx.execute(statement.where(*conditions), identity).all()
    nested_conditions = (and_(*group).is_(true()) for group in chunks(conditions, _JOINED))
    # There are too many such statements to cache each.
    return tx.connection.execute(
        statement.where(*nested_conditions), identity, execution_options={"compiled_cache": None}
    ).all()


def _has_trait(ids: Sequence[int]) -> Condition:
    table = resource_provider_traits
    return PROVIDER.c.id.in_(
        select(table.c.resource_provider_id).where(table.c.trait_id.in_(sorted(ids)))
    )


def _in_aggregate(uuids: frozenset[str]) -> Condition:
    table = resource_provider_aggregates
    return PROVIDER.c.id.in_(
        select(table.c.resource_provider_id)
        .join(placement_aggregates, placement_aggregates.c.id == table.c.aggregate_id)
        .where(placement_aggregates.c.uuid.in_(sorted(uuids)))
    )


def _fits(class_id: int, amount: int) -> Condition:
    table = inventories
    return PROVIDER.c.id.in_(
        select(table.c.resource_provider_id).where(
            table.c.resource_class_id == class_id,
            table.c.min_unit <= amount,
            table.c.max_unit >= amount,
            amount % table.c.step_size == 0,
            table.c.used + amount <= table.c.capacity,
        )
    )
