"""The wall clock of a host is set while its agent runs: passes, the status and the stop go on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fixtures.clocks import Clock
from tests.functional.agent.processes import AgentProcess, PlacementProcess, eventually, vcpus

pytestmark = pytest.mark.waiting

DAY = 24 * 3600


@pytest.mark.parametrize("before", [60, 365 * DAY, -60, -365 * DAY])
def test_an_agent_goes_on_when_the_clock_is_set_right(
    placement: PlacementProcess,
    new_agent: Callable[..., AgentProcess],
    node: str,
    tmp_path: Path,
    before: int,
) -> None:
    clock = Clock(tmp_path / "clock")
    clock.set(before)
    agent = new_agent(placement.url)
    agent.start(PRELOADED="no", **clock.environment)
    agent.started()
    clock.set(0)
    agent.script(nodes=[node], inventory={"VCPU": {"total": 64}})
    eventually(lambda: vcpus(placement, node) == 64, "a pass after the clock was set", 20)
    assert "Traceback" not in agent.logged()
    assert agent.stop() == 0
