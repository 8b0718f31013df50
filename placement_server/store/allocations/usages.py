"""Usages of a provider and of a project."""

from __future__ import annotations

from typing import Any, Final

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
    statement = _of_owner(
        select(resource_classes.c.name, func.sum(allocations.c.used)).group_by(
            resource_classes.c.name
        ),
        project_id,
        user_id,
    ).join(resource_classes, resource_classes.c.id == allocations.c.resource_class_id)
    return {name: int(used) for name, used in tx.execute(statement)}


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
    type_name = consumer_types.c.name
    group = consumer_type != ALL
    keys: list[Any] = [type_name] if group else []
    sums = _of_type(
        _of_owner(
            select(*keys, resource_classes.c.name, func.sum(allocations.c.used)).group_by(
                *keys, resource_classes.c.name
            ),
            project_id,
            user_id,
        ),
        consumer_type,
    ).join(resource_classes, resource_classes.c.id == allocations.c.resource_class_id)
    counts = _of_type(
        _of_owner(
            select(*keys, func.count(distinct(consumers.c.id))).group_by(*keys),
            project_id,
            user_id,
        ),
        consumer_type,
    )
    resources: dict[str, dict[str, int]] = {}
    for *key, resource_class, used in tx.execute(sums):
        name = (key[0] or UNKNOWN) if group else ALL
        resources.setdefault(name, {})[resource_class] = int(used)
    number: dict[str, int] = {}
    for *key, count in tx.execute(counts):
        number[(key[0] or UNKNOWN) if group else ALL] = count
    return {name: TypeUsage(number[name], amounts) for name, amounts in resources.items()}


def _of_owner(statement: AnySelect, project_id: str, user_id: str | None) -> AnySelect:
    """Restrict a statement to the allocations of a project and, if given, of a user."""
    statement = (
        statement.select_from(allocations)
        .join(consumers, consumers.c.uuid == allocations.c.consumer_id)
        .join(projects, projects.c.id == consumers.c.project_id)
        .where(projects.c.external_id == project_id)
    )
    if user_id is not None:
        statement = statement.join(users, users.c.id == consumers.c.user_id).where(
            users.c.external_id == user_id
        )
    return statement


def _of_type(statement: AnySelect, consumer_type: str | None) -> AnySelect:
    statement = statement.outerjoin(
        consumer_types, consumer_types.c.id == consumers.c.consumer_type_id
    )
    if consumer_type is None or consumer_type == ALL:
        return statement
    if consumer_type == UNKNOWN:
        return statement.where(consumers.c.consumer_type_id.is_(None))
    return statement.where(consumer_types.c.name == consumer_type)
