"""Reports that agents send with the reads of their trees, gathered and written now and then."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from compute_agent.programs.kept_values import KeptValues
from placement_server.store import agent_reports
from placement_server.store.agent_reports import AgentReport
from placement_server.store.errors import StoreError
from placement_server.store.store import Store

LOG = logging.getLogger(__name__)

GATHERED_FOR: Final = 2.0
"""Seconds for which reports are gathered: so a worker writes them with one transaction."""

OUTAGE_LOG_SECONDS: Final = 60.0
"""Seconds for which a cause that was logged is not logged again."""


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
            self._store.write(agent_reports.write, reports)
        except StoreError as error:
            cause = str(error)
            if self._logged_causes.is_new(cause, True):
                LOG.warning(
                    "The last reports of %d agent(s) are not recorded: %s", len(reports), cause
                )
