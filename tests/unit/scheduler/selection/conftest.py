"""Claims with and without alternatives, and the journal."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.scheduler.bank import Bank


@pytest.fixture(autouse=True, params=[True, False], ids=["alternatives", "plain"])
def alternatives(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether placement takes claims with alternatives: what is chosen is the same."""
    monkeypatch.setattr(Bank, "alternatives", request.param)


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal"
