"""Reports of agents: when one is notable, and those that a database does not take."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Any, cast

import pytest

from placement_server.store import agent_reports
from placement_server.store.agent_reports import AgentReport, GatheredReports
from placement_server.store.errors import StoreUnavailable
from placement_server.store.store import Store


class AwayStore:
    """A store whose database does not answer."""

    def write(self, *_arguments: Any) -> None:
        raise StoreUnavailable("The database is away.")


def test_an_outage_is_logged_once_and_not_with_each_report(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(agent_reports, "GATHERED_FOR", 0.0)
    reports = GatheredReports(cast(Store, AwayStore()))
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            reports._write_soon()
    (line,) = caplog.messages
    assert line.startswith("The last reports of 0 agent(s) are not recorded: The database is away.")


@pytest.mark.parametrize(
    ("bus", "trouble", "disabled_reason", "is_notable"),
    [
        *((state, "", "", False) for state in ("off", "waiting", "up")),
        *((state, "", "", True) for state in ("refused", "unreachable")),
        ("up", "no libvirt", "", True),
        ("up", "", "fan", True),
    ],
)
def test_a_report_is_notable_that_says_more_than_that_the_agent_is_there(
    bus: str, trouble: str, disabled_reason: str, is_notable: bool
) -> None:
    document = {"bus": {"state": bus}, "trouble": trouble, "disabled_reason": disabled_reason}
    assert AgentReport(datetime(2026, 1, 1), document).is_notable is is_notable


def test_an_agent_is_silent_after_three_periods_and_some_seconds() -> None:
    report = AgentReport(datetime(2026, 1, 1), {"period": 10})
    assert report.silent_at == report.at + timedelta(seconds=35)
