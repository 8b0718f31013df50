"""All allocations page by page, and the consumers of some projects or types."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

from sqlalchemy import select

from placement_server.store.dialects import plain
from placement_server.store.dialects.among import among
from placement_server.store.tables import allocations, consumer_types, consumers, projects
from placement_server.store.transaction import ReadTransaction

_PAGE: Final = 2_000
_A: Final = allocations.c
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
