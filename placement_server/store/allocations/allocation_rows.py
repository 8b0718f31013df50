"""Reads of allocations: by consumer, by provider, by tree, and all of them page by page."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

from sqlalchemy import bindparam, select

from placement_server.store.dialects import plain
from placement_server.store.dialects.batches import among
from placement_server.store.providers import provider_rows
from placement_server.store.providers.tree import Tree, read_tree
from placement_server.store.records import AllocationRow, ConsumerRecord, Provider
from placement_server.store.tables import (
    allocations,
    consumer_types,
    consumers,
    projects,
    resource_classes,
    resource_providers,
    users,
)
from placement_server.store.transaction import AnyRow, ReadTransaction, aware

_A: Final = allocations.c

_ROWS: Final = (
    select(
        resource_providers.c.uuid,
        resource_providers.c.generation,
        resource_classes.c.name,
        _A.used,
        _A.consumer_id,
        _A.created_at,
        _A.updated_at,
    )
    .join(resource_providers, resource_providers.c.id == _A.resource_provider_id)
    .join(resource_classes, resource_classes.c.id == _A.resource_class_id)
)
_OF_CONSUMER: Final = _ROWS.where(_A.consumer_id == bindparam("uuid")).order_by(_A.id)
_OF_PROVIDER: Final = _ROWS.where(_A.resource_provider_id == bindparam("the_id")).order_by(_A.id)

_RECORDS: Final = (
    select(
        consumers.c.uuid,
        consumers.c.generation,
        projects.c.external_id,
        users.c.external_id,
        consumer_types.c.name,
    )
    .join(projects, projects.c.id == consumers.c.project_id)
    .join(users, users.c.id == consumers.c.user_id)
    .outerjoin(consumer_types, consumer_types.c.id == consumers.c.consumer_type_id)
)
_RECORD: Final = _RECORDS.where(consumers.c.uuid == bindparam("uuid"))
_RECORDS_OF_PROVIDER: Final = _RECORDS.where(
    consumers.c.uuid.in_(
        select(_A.consumer_id).where(_A.resource_provider_id == bindparam("the_id"))
    )
)

_HOLDERS: Final = (
    select(_A.consumer_id).where(among(_A.resource_provider_id, "provider_ids")).distinct()
)
_OF_CONSUMERS: Final = _ROWS.where(among(_A.consumer_id, "uuids")).order_by(_A.id)
_RECORDS_AMONG: Final = _RECORDS.where(among(consumers.c.uuid, "uuids"))
_PAGE: Final = 2_000
_PAGES: Final = (
    f"{select(_A.id, _A.consumer_id, _A.resource_provider_id, _A.resource_class_id, _A.used)} "
    f"WHERE allocations.id > {{mark}} ORDER BY allocations.id LIMIT {_PAGE}"
)
_OF_PROJECTS: Final = (
    select(consumers.c.uuid)
    .join(projects, projects.c.id == consumers.c.project_id)
    .where(among(projects.c.external_id, "names"))
)
_OF_TYPES: Final = (
    select(consumers.c.uuid)
    .join(consumer_types, consumer_types.c.id == consumers.c.consumer_type_id)
    .where(among(consumer_types.c.name, "names"))
)

Holder: TypeAlias = tuple[ConsumerRecord, list[AllocationRow]]
"""A consumer and its allocations."""


def of_consumer(
    tx: ReadTransaction, consumer_uuid: str
) -> tuple[ConsumerRecord | None, list[AllocationRow]]:
    """Return a consumer and its allocations; (None, []) when it has none."""
    rows = [_row(row) for row in tx.execute(_OF_CONSUMER, {"uuid": consumer_uuid}).all()]
    if not rows:
        return None, []
    record = tx.execute(_RECORD, {"uuid": consumer_uuid}).first()
    return (None if record is None else ConsumerRecord(*record)), rows


def of_provider(tx: ReadTransaction, uuid: str) -> tuple[Provider, list[Holder]]:
    """Return a provider, and its allocations by consumer.

    :raises ProviderNotFound: it does not exist.
    """
    provider = provider_rows.get(tx, uuid)
    key = {"the_id": provider.id}
    rows = tx.execute(_OF_PROVIDER, key).all()
    if not rows:
        return provider, []
    return provider, _holders(rows, tx.execute(_RECORDS_OF_PROVIDER, key).all())


def of_tree(tx: ReadTransaction, uuid: str) -> tuple[Tree, list[Holder]]:
    """Return the tree of a provider, and all that each holder of some of it holds anywhere.

    :raises ProviderNotFound: the provider does not exist.
    """
    tree = read_tree(tx, uuid)
    provider_ids = [provider.id for provider in tree.providers]
    uuids = {row[0] for row in tx.execute_among(_HOLDERS, "provider_ids", provider_ids)}
    rows = tx.execute_among(_OF_CONSUMERS, "uuids", uuids)
    return tree, _holders(rows, tx.execute_among(_RECORDS_AMONG, "uuids", uuids))


def _holders(rows: Iterable[AnyRow], record_rows: Iterable[AnyRow]) -> list[Holder]:
    by_consumer: dict[str, list[AllocationRow]] = {}
    for row in rows:
        by_consumer.setdefault(row[4], []).append(_row(row))
    records = {row[0]: ConsumerRecord(*row) for row in record_rows}
    return [
        # databases of old software may have allocations whose consumer has no record
        (records.get(consumer) or ConsumerRecord(consumer, 0, "", "", None), rows)
        for consumer, rows in by_consumer.items()
    ]


def _row(row: AnyRow) -> AllocationRow:
    provider, generation, resource_class, used, consumer, created, updated = row
    return AllocationRow(
        provider, generation, resource_class, used, consumer, aware(updated or created)
    )


def pages(tx: ReadTransaction) -> Iterator[Sequence[Any]]:
    """Yield all allocations in pages: id, consumer, ids of provider and class, amount."""
    last = 0
    while True:
        rows = plain.rows(tx.connection, _PAGES.format(mark=tx.batches.mark), (last,))
        if rows:
            yield rows
        if len(rows) < _PAGE:
            return
        last = rows[-1][0]


def consumers_of(
    tx: ReadTransaction, project_ids: Collection[str], types: Collection[str]
) -> set[str]:
    """Return the consumers of some projects, and those of some types."""
    rows = [
        *tx.execute_among(_OF_PROJECTS, "names", project_ids),
        *tx.execute_among(_OF_TYPES, "names", types),
    ]
    return {uuid for (uuid,) in rows}
