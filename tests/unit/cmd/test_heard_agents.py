"""Length of the time that `compute-manage host` listens for an agent that is not heard."""

import time
from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from compute_agent.cmd.manage import fleet

LIVE, DEAD = "live", "dead"


class Bus:
    """Agents of which one runs.

    :ivar listened: the seconds for which each question would have listened, and for which hosts.
    """

    patience = 30.0
    one_period = 12.0

    def __init__(self) -> None:
        self.listened: list[tuple[float, set[str]]] = []

    def nodes(self, roots: Collection[str], patience: float) -> dict[str, Mapping[str, Any]]:
        self.listened.append((patience, set(roots)))
        return {root: {"service": root} for root in roots if root == LIVE}


@pytest.fixture
def bus() -> Bus:
    return Bus()


def heard(
    bus: Bus, roots: list[str], monkeypatch: pytest.MonkeyPatch, ages: Mapping[str, float]
) -> Any:
    """What is heard where a scheduler heard hosts so many seconds ago."""
    now = time.time()
    monkeypatch.setattr(
        fleet, "last_heard", lambda _conf: {root: now - age for root, age in ages.items()}
    )
    return fleet.heard_agents(SimpleNamespace(), bus, roots)  # type: ignore[arg-type]


def test_no_scheduler_is_asked_where_every_agent_is_heard(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = heard(bus, [LIVE], monkeypatch, {LIVE: 3.0, "other": 900.0})
    assert (set(known.nodes), dict(known.last_heard)) == ({LIVE}, {})
    assert bus.listened == [(12.0, {LIVE})]


def test_a_host_that_a_scheduler_knows_as_silent_is_listened_for_one_period(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = heard(bus, [LIVE, DEAD], monkeypatch, {LIVE: 3.0, DEAD: 31.0})
    assert bus.listened == [(12.0, {LIVE, DEAD})]
    assert set(known.nodes) == {LIVE}
    assert DEAD in known.last_heard


@pytest.mark.parametrize("ages", [{}, {LIVE: 3.0}, {LIVE: 3.0, DEAD: 29.0}])
def test_a_host_that_may_only_be_late_is_listened_for_three_periods(
    bus: Bus, monkeypatch: pytest.MonkeyPatch, ages: Mapping[str, float]
) -> None:
    known = heard(bus, [LIVE, DEAD], monkeypatch, ages)
    assert bus.listened == [(12.0, {LIVE, DEAD}), (18.0, {DEAD})]
    assert set(known.nodes) == {LIVE}


def test_no_scheduler_is_asked_before_the_end_where_listening_on_takes_no_longer(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus.patience, bus.one_period = 3.0, 1.2
    known = heard(bus, [LIVE, DEAD], monkeypatch, {})
    assert bus.listened == [(3.0, {LIVE, DEAD})]
    assert set(known.nodes) == {LIVE}
