"""Reports of agents that a database does not take."""

from __future__ import annotations

import logging
from typing import Any, cast

import pytest

from placement_server.store import agent_reports
from placement_server.store.agent_reports import GatheredReports
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
