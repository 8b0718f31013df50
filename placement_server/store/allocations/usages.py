"""Usages of a provider and of a project."""

from __future__ import annotations

from typing import Final

from sqlalchemy import distinct, func, null, select

from placement_server.store.providers import provider_rows
from placement_server.store.providers.provider_rows import AnySelect
from placement_server.store.records import TypeUsage
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


def of_provider(tx: ReadTransaction, uuid: str) -> tuple[int, dict[str, int]]:
    """Return the generation of a provider, and the use of every class it has inventory of.

    :raises ProviderNotFound: it does not exist.
    """
    generation, rows = provider_rows.get_with(tx, _OF_PROVIDER, uuid)
    return generation, {name: int(used) for name, used in rows}


def of_project(tx: ReadTransaction, project_id: str, user_id: str | None = None) -> dict[str, int]:
    """Return the allocated sums of a project (and one of its users), by class."""
    sums, _ = _statements(project_id, user_id, ALL)
    return {name: int(used) for name, used in tx.execute(sums)}


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
    sums, counts = _statements(project_id, user_id, consumer_type)
    resources: dict[str, dict[str, int]] = {}
    numbers: dict[str, int] = {}
    for *key, resource_class, number in tx.execute(sums.union_all(counts)):
        name = (key[0] or UNKNOWN) if key else ALL
        if resource_class is None:
            numbers[name] = int(number)
        else:
            resources.setdefault(name, {})[resource_class] = int(number)
    return {name: TypeUsage(numbers[name], amounts) for name, amounts in resources.items()}


def _statements(
    project_id: str, user_id: str | None, consumer_type: str | None
) -> tuple[AnySelect, AnySelect]:
    """Return statements for the sums, by type and class, and for the numbers of consumers.

    The rows of the second have no class.
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
    number = func.count(distinct(consumers.c.id))
    return sums, statement.add_columns(null(), number)
