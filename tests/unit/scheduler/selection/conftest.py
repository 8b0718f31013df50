"""The journal of a scheduler, which does not wait."""

from __future__ import annotations

from pathlib import Path

import pytest

from compute_agent.scheduler.claiming import together


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim on a crowded host looks again as often, without waiting in between."""
    monkeypatch.setattr(together, "PAUSES", (0.0,) * len(together.PAUSES))


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal"
