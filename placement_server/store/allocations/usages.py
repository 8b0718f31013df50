"""Usages of a provider and of a project."""

from __future__ import annotations

from typing import Final

from sqlalchemy import distinct, func, select

from placement_server.store.providers import provider_rows
from placement_server.store.providers.provider_rows import AnySelect
from placement_server.store.records import Provider, TypeUsage
from placement_server.store.tables import (
    allocations,
    consumer_types,
    consumers,
    inventories,
    projects,
    resource_classes,
    users,
)
from placement_server.store.transaction import ReadTransaction

UNKNOWN: Final = "unknown"
"""The type shown for consumers without one."""
ALL: Final = "all"
"""The type that asks for one sum over the consumers of all types."""

_OF_PROVIDER: Final = provider_rows.select_with(
    inventories.join(resource_classes, resource_classes.c.id == inventories.c.resource_class_id),
    inventories.c.resource_provider_id,
    resource_classes.c.name,
    inventories.c.used,
    order_by=inventories.c.resource_class_id,
)


def of_provider(tx: ReadTransaction, uuid: str) -> tuple[Provider, dict[str, int]]:
    """Return the use of every class that the provider has inventory of.

    :raises ProviderNotFound: it does not exist.
    """
    provider, rows = provider_rows.get_with(tx, _OF_PROVIDER, uuid)
    return provider, {name: int(used) for name, used in rows}


def of_project(tx: ReadTransaction, project_id: str, user_id: str | None = None) -> dict[str, int]:
    """Return the allocated sums of a project (and one of its users), by class."""
    usage = by_consumer_type(tx, project_id, user_id, ALL).get(ALL)
    return {} if usage is None else dict(usage.resources)


def by_consumer_type(
    tx: ReadTransaction,
    project_id: str,
    user_id: str | None = None,
    consumer_type: str | None = None,
) -> dict[str, TypeUsage]:
    """Return the allocated sums by consumer type, with the number of consumers.

    Types without allocations are left out.

    :param consumer_type: one type by name; `unknown` for the consumers without a type; `all`
        for one sum over all; `None` for each type on its own.
    """
    key = [] if consumer_type == ALL else [consumer_types.c.name]
    statement: AnySelect = (
        select(*key)
        .select_from(allocations)
        .join(consumers, consumers.c.uuid == allocations.c.consumer_id)
        .join(projects, projects.c.id == consumers.c.project_id)
        .outerjoin(consumer_types, consumer_types.c.id == consumers.c.consumer_type_id)
        .where(projects.c.external_id == project_id)
        .group_by(*key)
    )
    if user_id is not None:
        of_user = users.c.external_id == user_id
        statement = statement.join(users, users.c.id == consumers.c.user_id).where(of_user)
    if consumer_type == UNKNOWN:
        statement = statement.where(consumers.c.consumer_type_id.is_(None))
    elif consumer_type is not None and consumer_type != ALL:
        statement = statement.where(consumer_types.c.name == consumer_type)
    sums = (
        statement.add_columns(resource_classes.c.name, func.sum(allocations.c.used))
        .join(resource_classes, resource_classes.c.id == allocations.c.resource_class_id)
        .group_by(resource_classes.c.name)
    )
    resources: dict[str, dict[str, int]] = {}
    for *name, resource_class, used in tx.execute(sums):
        resources.setdefault(_type_of(name), {})[resource_class] = int(used)
    counts = tx.execute(statement.add_columns(func.count(distinct(consumers.c.id))))
    numbers = {_type_of(name): count for *name, count in counts}
    return {name: TypeUsage(numbers[name], amounts) for name, amounts in resources.items()}


def _type_of(key: list[str | None]) -> str:
    return (key[0] or UNKNOWN) if key else ALL
