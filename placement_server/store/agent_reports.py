"""The last report of the agent of each host: at most one row for each root provider.

Agents send them with the reads of their trees; they are gathered and written now and then.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy import func, or_, select

from compute_agent.programs.kept_values import KeptValues
from placement_server.store.dialects.batches import among, chunks
from placement_server.store.errors import StoreError
from placement_server.store.store import Store
from placement_server.store.tables import agent_reports, resource_providers
from placement_server.store.transaction import ReadTransaction, WriteTransaction

LOG = logging.getLogger(__name__)

MISSED_PERIODS: Final = 3
"""Periods without a report after which an agent is silent."""

DELAY: Final = 5
"""Seconds that a report may take into the database: those of some seconds are written together."""

GATHERED_FOR: Final = 2.0
"""Seconds for which reports are gathered: so a worker writes them with one transaction."""

OUTAGE_LOG_SECONDS: Final = 60.0
"""Seconds for which a cause that was logged is not logged again."""

_C: Final = agent_reports.c
_P: Final = resource_providers.c
# With a condition on the parent SQLite walks all roots.
_PARENTS: Final = select(_P.uuid, _P.parent_provider_id).where(among(_P.uuid, "uuids"))
_ROWS: Final = select(
    _C.root_provider_uuid, _P.name, _C.reported_at, _C.silent_at, _C.document
).join_from(agent_reports, resource_providers, _P.uuid == _C.root_provider_uuid)


class AgentReport(Struct, frozen=True):
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


class StoredReport(Struct, frozen=True):
    """The last report of the agent of one host."""

    root_uuid: str
    name: str
    at: datetime
    is_silent: bool
    document: Mapping[str, Any]


def write(tx: WriteTransaction, reports: Mapping[str, AgentReport]) -> None:
    """Replace the reports of hosts, given by the uuid of their root; others are left out."""
    parents = tx.execute_among(_PARENTS, "uuids", reports)
    roots = {uuid for uuid, parent_id in parents if parent_id is None}
    tx.count_among("DELETE FROM agent_reports WHERE root_provider_uuid ", roots)
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
    of_roots = statement.where(among(_P.uuid, "uuids"))
    parts = chunks(sorted(set(roots)))
    rows: Sequence[Any] = (
        [row for part in parts for row in tx.execute(of_roots, {"uuids": part})]
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


class GatheredReports:
    """Reports of agents on their way to the database. Thread safe.

    A worker that ends in between loses those of two seconds; the next follow after a period.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._mutex = threading.Lock()
        self._pending_reports: dict[str, AgentReport] = {}
        self._is_gathering = False
        self._logged_causes: KeptValues[str, bool] = KeptValues(OUTAGE_LOG_SECONDS, most=100)

    def take(self, root_uuid: str, document: Mapping[str, Any]) -> None:
        """Take what the agent of a host reports of itself now."""
        report = AgentReport(datetime.now(UTC).replace(tzinfo=None, microsecond=0), document)
        with self._mutex:
            self._pending_reports[root_uuid.lower()] = report
            is_first, self._is_gathering = not self._is_gathering, True
        if is_first:
            threading.Thread(target=self._write_soon, name="agent-reports", daemon=True).start()

    def _write_soon(self) -> None:
        time.sleep(GATHERED_FOR)
        with self._mutex:
            reports, self._pending_reports = self._pending_reports, {}
            self._is_gathering = False
        try:
            self._store.write(write, reports)
        except StoreError as error:
            cause = str(error)
            if self._logged_causes.is_new(cause, True):
                LOG.warning(
                    "The last reports of %d agent(s) are not recorded: %s", len(reports), cause
                )
