"""An agent whose state directory was damaged: how it ends, and what it does to placement."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from compute_agent import errors
from tests.fixtures import programs
from tests.functional.agent.processes import PATIENCE, AgentProcess, PlacementProcess, running
from tests.integration.nemesis.small_disk import SmallDisk
from tests.unit.tracker.damaged_documents import CLAIM, GUEST, NO_FILES, RAW, envelope

pytestmark = pytest.mark.waiting

MEMORY = 1024**3
"""Bytes that the process may map."""


@pytest.fixture
def agent(
    placement: PlacementProcess, new_agent: Callable[..., AgentProcess], node: str
) -> AgentProcess:
    """An agent that has reported its host, with a device, and does not run."""
    agent = new_agent(placement.url)
    agent.start()
    agent.started()
    assert agent.stop() == 0
    return agent


def damage(agent: AgentProcess, name: str, form: str) -> None:
    path = agent.state / name
    path.unlink(missing_ok=True)
    if form in RAW:
        path.write_bytes(RAW[form])
    else:
        NO_FILES[form](path)


@pytest.mark.parametrize(
    ("name", "form", "status"),
    [
        ("claims.json", "pipe", 1),
        ("claims.json", "endless", 1),
        ("claims.json", "10 GiB", 1),
        ("claims.json", "deep lists", 1),
        ("faults.json", "deep objects", 1),
        ("agent.lock", "directory", 1),
        ("compute_id", "pipe", 5),
        ("compute_id", "endless", 5),
        ("registered", "10 GiB", 5),
        ("registered", "deep lists", 5),
    ],
)
def test_a_damaged_file_that_is_the_truth_ends_the_start_with_its_name_and_changes_nothing(
    placement: PlacementProcess, agent: AgentProcess, node: str, name: str, form: str, status: int
) -> None:
    before = placement.tree(node)
    damage(agent, name, form)
    result = programs.run(
        "tests.functional.agent.limited_memory",
        *(str(MEMORY), "run", "--config-file", str(agent.config)),
        timeout=PATIENCE,
        environment=agent.environment(),
    )
    assert result.returncode == status, result.stderr
    assert str(agent.state / name) in result.stderr
    assert "Traceback" not in result.stderr
    assert placement.tree(node) == before


def test_a_claim_that_is_a_number_ends_the_start_with_its_place(agent: AgentProcess) -> None:
    claims = {"claims": {GUEST: {**CLAIM, "units": [3]}}}
    (agent.state / "claims.json").write_bytes(envelope(claims))
    for command in ("run", "claims", "plan"):
        result = agent.run(command)
        assert result.returncode == 1
        assert f"claims.{GUEST}.units[0] is 3, not an object" in result.stderr
    assert "claims.json" in agent.run("doctor").stdout


@pytest.mark.parametrize("form", ["pipe", "endless", "10 GiB", "deep objects", "half", "a list"])
def test_a_damaged_cache_is_set_aside_and_costs_placement_nothing(
    placement: PlacementProcess, agent: AgentProcess, node: str, form: str
) -> None:
    before = placement.tree(node)
    damage(agent, "placement-cache.json", form)
    agent.start()
    agent.started()
    assert agent.stop() == 0
    assert "placement-cache.json.broken" in agent.logged()
    assert (agent.state / "placement-cache.json").is_file()
    assert not (agent.state / "placement-cache.json").is_symlink()
    assert placement.tree(node) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="a disk is mounted by root alone")
def test_a_full_disk_is_in_the_status_and_the_metrics_until_there_is_room(
    placement: PlacementProcess, new_agent: Callable[..., AgentProcess]
) -> None:
    agent = new_agent(placement.url)
    disk = SmallDisk(agent.state, 1)
    try:
        with running(agent):
            with disk.full():
                with pytest.raises(errors.ComputeAgentError, match="No space left on device"):
                    agent.ask("set_host_enabled", enabled=False, reason="fan")
                state = (agent.status() or {})["state"]
                assert f"{agent.state}/service.json cannot be written" in state["message"]
                agent.report()
                shown = agent.run("status").stdout
                assert f"state      not written since {state['since']}: The state file" in shown
            agent.report()
            assert (agent.status() or {})["state"] is None
    finally:
        disk.unmount()
