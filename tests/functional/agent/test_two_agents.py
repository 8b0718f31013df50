"""Two agents that report one host, without a message bus: a takeover, and alternating writes."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable
from functools import partial

import pytest

from compute_agent.tracker.write_contest import MOST_UNDONE
from tests.functional.agent.processes import (
    AgentProcess,
    PlacementProcess,
    claim,
    eventually,
    running,
)

pytestmark = pytest.mark.waiting


def test_an_empty_host_of_another_machine_is_taken_over_only_when_that_is_confirmed(
    placement: PlacementProcess, new_agent: Callable[..., AgentProcess], node: str
) -> None:
    first, second = new_agent(placement.url), new_agent(placement.url)
    for agent in (first, second):
        agent.script(nodes=[node])
    with running(first):
        root = str(placement.root(node)["uuid"])  # type: ignore[index]
        path = f"/agent_reports?root={root}"
        eventually(lambda: placement.get(path)["agent_reports"], "the report of the first")
        second.start()
        assert second.ended() == 5
        assert "start once with --adopt" in second.logged()
        assert str(first.state) in second.logged(), "it names who reported the host"
        assert not (second.state / "compute_id").exists()
    # the same machine and state directory, whose identity was lost
    for name in ("compute_id", "registered"):
        (first.state / name).unlink()
    with running(first):
        assert "taken over from placement" in first.logged()
    second.start("--adopt")
    second.started()
    second.stop()


def test_a_state_directory_of_another_machine_is_refused_until_its_move_is_confirmed(
    placement: PlacementProcess, new_agent: Callable[..., AgentProcess], node: str
) -> None:
    agent = new_agent(placement.url)
    agent.script(nodes=[node])
    with running(agent):
        pass
    registered = agent.state / "registered"
    this_machine = json.loads(registered.read_text())["machine_id"]

    def copy_to_another_machine() -> None:
        registered.write_text(registered.read_text().replace(this_machine, "0" * 32))

    copy_to_another_machine()
    agent.start()
    assert agent.ended() == 5
    assert f"this machine has the id {this_machine}" in agent.logged()
    assert "start once with --adopt" in agent.logged()
    assert "start once with --adopt" in agent.run("doctor").stdout
    agent.start("--adopt")
    agent.started()
    agent.stop()
    assert this_machine in registered.read_text()
    guest = str(uuid.uuid4())
    claim(placement, str(placement.root(node)["uuid"]), {"VCPU": 1}, guest)  # type: ignore[index]
    copy_to_another_machine()
    agent.script(nodes=[node], instances=[guest])
    with running(agent):
        assert agent.node()["trouble"] is None, "a guest of it runs here"


def test_two_agents_that_undo_each_other_stop_with_an_error_that_names_both(
    placement: PlacementProcess, new_agent: Callable[..., AgentProcess], node: str
) -> None:
    only_asked_for = {"update_resources_interval": 3600}
    original, clone = (new_agent(placement.url, DEFAULT=only_asked_for) for _ in range(2))
    original.script(nodes=[node], inventory={"VCPU": {"total": 8}})
    clone.script(nodes=[node], inventory={"VCPU": {"total": 4}})
    with running(original):
        clone.state.mkdir()
        shutil.copy(original.state / "compute_id", clone.state / "compute_id")
        with running(clone):
            for _ in range(MOST_UNDONE):
                for agent in (original, clone):
                    assert agent.report()["trouble"] is None
                    # as where passes of both fall together: it finds what it has just written
                    assert agent.report()["last_pass"]["changes"] == 0
            before = placement.root(node)
            path = f"/agent_reports?root={before['uuid']}"  # type: ignore[index]

            def last_report_is_of(agent: AgentProcess) -> bool:
                reports = placement.get(path)["agent_reports"]
                return [r["place"]["state_path"] for r in reports] == [str(agent.state)]

            for agent, other in ((original, clone), (clone, original)):
                # placement gathers reports of some seconds, and keeps the last of each host
                eventually(partial(last_report_is_of, other), "the report of the other one")
                message = agent.report()["trouble"]["message"]
                assert "in a row" in message
                assert f"VCPU of {node}" in message
                assert str(agent.state) in message
                assert str(other.state) in message
            assert placement.root(node) == before
            diagnosed = original.run("doctor")
            assert f"running agent: {node}" in diagnosed.stdout, diagnosed.stdout
            assert "in a row" in diagnosed.stdout
            assert diagnosed.returncode == 2
            eventually(
                lambda: "in a row" in placement.get(path)["agent_reports"][0]["trouble"],
                "the trouble in the last report",
            )
    # one of them is stopped, and the other one restarted
    with running(original):
        assert original.node()["trouble"] is None
