"""The last report of the agent of each host: at most one row for each root provider."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import func, or_, select

from placement_server.store.dialects.among import among
from placement_server.store.dialects.batches import chunks
from placement_server.store.tables import agent_reports, resource_providers
from placement_server.store.transactions.transaction import ReadTransaction, WriteTransaction

MISSED_PERIODS: Final = 3
"""Periods without a report after which an agent is silent."""

DELAY: Final = 5
"""Seconds that a report may take into the database: those of some seconds are written together."""

_C: Final = agent_reports.c
_P: Final = resource_providers.c
_ROOTS: Final = select(_P.uuid).where(among(_P.uuid, "uuids"), _P.parent_provider_id.is_(None))
_DELETE: Final = sa.delete(agent_reports).where(among(_C.root_provider_uuid, "uuids"))
_ROWS: Final = select(
    _C.root_provider_uuid, _P.name, _C.reported_at, _C.silent_at, _C.document
).join_from(agent_reports, resource_providers, _P.uuid == _C.root_provider_uuid)


@dataclass(frozen=True, slots=True)
class AgentReport:
    """What an agent reported of itself, and when.

    :ivar document: `period` in seconds, and other facts.
    """

    at: datetime
    document: Mapping[str, Any]

    @property
    def silent_at(self) -> datetime | None:
        period = self.document["period"]
        if period is None:
            return None
        return self.at + timedelta(seconds=MISSED_PERIODS * period + DELAY)

    @property
    def is_notable(self) -> bool:
        """Whether it says more than that the agent is there."""
        bus = self.document["bus"]["state"]
        is_in_trouble = bus in ("refused", "unreachable") or self.document["trouble"]
        return bool(is_in_trouble or self.document["disabled_reason"])


@dataclass(frozen=True, slots=True)
class StoredReport:
    """The last report of the agent of one host."""

    root_uuid: str
    name: str
    at: datetime
    is_silent: bool
    document: Mapping[str, Any]


def write(tx: WriteTransaction, reports: Mapping[str, AgentReport]) -> None:
    """Replace the reports of hosts, given by the uuid of their root; others are left out."""
    roots = {row.uuid for row in tx.execute_among(_ROOTS, "uuids", reports)}
    for chunk in chunks(sorted(roots)):
        tx.execute(_DELETE, {"uuids": chunk})
    rows = [
        {
            "root_provider_uuid": uuid,
            "reported_at": report.at,
            "silent_at": report.silent_at,
            "is_notable": int(report.is_notable),
            "document": json.dumps(report.document),
        }
        for uuid, report in sorted(reports.items())
        if uuid in roots
    ]
    if rows:
        tx.execute(sa.insert(agent_reports), rows)


def read(
    tx: ReadTransaction, now: datetime, *, roots: Collection[str] = (), only_notable: bool = False
) -> list[StoredReport]:
    """Return the reports of hosts by name.

    :param roots: of these only; empty: of all.
    :param only_notable: of those only that are silent or have something to say.
    """
    statement = _ROWS.order_by(_P.name)
    if only_notable:
        statement = statement.where(or_(_C.is_notable != 0, _C.silent_at < now))
    rows: Sequence[Any] = (
        tx.execute_among(statement.where(among(_P.uuid, "uuids")), "uuids", roots)
        if roots
        else tx.execute(statement).all()
    )
    return [
        StoredReport(
            uuid,
            name,
            at.replace(tzinfo=UTC),
            silent_at is not None and silent_at < now,
            json.loads(document),
        )
        for uuid, name, at, silent_at, document in rows
    ]


def counts(tx: ReadTransaction, now: datetime) -> tuple[int, int]:
    """Return how many agents report, and how many are silent."""
    silent = func.coalesce(func.sum(sa.case((_C.silent_at < now, 1), else_=0)), 0)
    statement = select(func.count(), silent).select_from(
        agent_reports.join(resource_providers, _P.uuid == _C.root_provider_uuid)
    )
    every, silent_count = tx.execute(statement).one()
    return every - int(silent_count), int(silent_count)
