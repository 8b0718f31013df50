"""Last reports of agents of themselves, where placement keeps them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from compute_agent import errors
from compute_agent.placement.connection import Connection
from compute_agent.placement.response_schemas import AGENT_REPORTS
from compute_agent.placement.transports.transport import EXTENSIONS_VERSION, Request

REPORT_HEADER: Final = "X-Compute-Agent-Report"
MOST_ROOTS: Final = 50
"""Hosts in one question; of more, all are asked for."""


class AgentReport(NamedTuple):
    """The last report of the agent of one host.

    :ivar at: seconds since 1970, by placement's clock.
    :ivar is_silent: it has missed the next ones.
    :ivar bus: `state`, `since` and `why`, as the agent saw its message bus.
    :ivar trouble: what its last pass failed with; empty: nothing.
    :ivar place: where the agent runs: its address, machine id, boot id and state directory.
    """

    at: float
    is_silent: bool
    bus: Mapping[str, Any]
    disabled_reason: str
    trouble: str
    place: Mapping[str, str]


class AgentReports:
    """The reads of these reports over one connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def read(self, roots: Collection[str]) -> dict[str, AgentReport]:
        """Return the last report of the agents of hosts, by the uuid of the root.

        Of an agent that has never sent one there is none, and of none where placement keeps none.

        :param roots: the hosts that are asked for; others may be in the answer.
        :raises errors.PlacementError: placement cannot be read.
        """
        if not roots or not self._connection.understands_extensions():
            return {}
        query = [("root", root) for root in sorted(roots)] if len(roots) <= MOST_ROOTS else []
        request = Request(
            "GET",
            f"/agent_reports?{urlencode(query)}",
            extensions=EXTENSIONS_VERSION,
            doing="Reading the last reports of agents",
            shape=AGENT_REPORTS,
            good=(200, 404),
        )
        try:
            response = self._connection.call(request)
        except errors.PlacementTooOld:
            return {}
        if response.status == 404:
            return {}
        return {
            report["root_provider_uuid"]: AgentReport(
                datetime.fromisoformat(report["at"]).timestamp(),
                report["silent"],
                report["bus"],
                report["disabled_reason"],
                report["trouble"],
                report["place"],
            )
            for report in response.json["agent_reports"]
        }
