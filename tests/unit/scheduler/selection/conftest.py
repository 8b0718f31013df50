"""Claims with and without alternatives, and the journal."""

from __future__ import annotations

from pathlib import Path

import pytest

from compute_agent.scheduler.claiming import crowding
from tests.unit.scheduler.bank import Bank


@pytest.fixture(autouse=True, params=[True, False], ids=["alternatives", "plain"])
def alternatives(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether placement takes claims with alternatives: what is chosen is the same."""
    monkeypatch.setattr(Bank, "alternatives", request.param)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim on a crowded host looks again as often, without waiting in between."""
    monkeypatch.setattr(crowding, "PAUSES", (0.0,) * len(crowding.PAUSES))


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal"
