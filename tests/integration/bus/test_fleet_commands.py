"""`compute-manage host` with real agents on a real RabbitMQ, and a host whose agent is away."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compute_agent.cmd.manage import main as manage
from compute_agent.programs.exit_status import Exit
from tests.fixtures.plain_trees import make_provider
from tests.fixtures.ports import free_port
from tests.functional.agent.processes import (
    AgentProcess,
    PlacementProcess,
    claim,
    running,
)
from tests.functional.documentation.shell_blocks import BlocksToRun, commands_of

pytestmark = pytest.mark.waiting


class Operator:
    """Runs `compute-manage host ...` in this process."""

    def __init__(self, directory: Path, url: str, bus: str, capture: pytest.CaptureFixture[str]):
        self.config = directory / "manage.conf"
        self.config.write_text(
            f"[DEFAULT]\ntransport_url = {bus}\nreport_interval = 1\nstate_path = {directory}\n"
            f"[placement]\nauth_type = noauth\nendpoint_override = {url}\n"
        )
        self._capture = capture

    def run(self, command: str, *arguments: str, status: int = 0) -> str:
        self._capture.readouterr()
        argv = ["host", command, f"--config-file={self.config}", *arguments]
        ended = manage.main(argv)
        out, err = self._capture.readouterr()
        assert ended == status, out + err
        return err if status == 4 else out

    def json(self, command: str, *arguments: str, status: int = 0) -> Any:
        return json.loads(self.run(command, "--json", *arguments, status=status))


@pytest.fixture(scope="module")
def silent(placement: PlacementProcess) -> str:
    """A host whose agent is away; its uuid."""
    return make_provider(placement.send, "silent", {"VCPU": 4}, ["COMPUTE_NODE"])


@pytest.fixture(scope="module")
def agent(
    tmp_path_factory: pytest.TempPathFactory, placement: PlacementProcess, bus_url: str
) -> Iterator[AgentProcess]:
    """An agent whose name on the bus is not that of its node."""
    made = AgentProcess(
        tmp_path_factory.mktemp("agent"),
        placement.url,
        DEFAULT={"transport_url": bus_url, "host": "service1", "report_interval": 1},
    )
    made.script(nodes=["node1"])
    with running(made):
        yield made


def release_all(placement: PlacementProcess, provider: str) -> None:
    held = placement.get(f"/resource_providers/{provider}/allocations")["allocations"]
    for consumer in held:
        assert placement.request("DELETE", f"/allocations/{consumer}").status_code == 204


@pytest.fixture
def operator(
    tmp_path: Path,
    placement: PlacementProcess,
    bus_url: str,
    agent: AgentProcess,
    silent: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Operator:
    del agent, silent
    # no scheduler is there to answer
    monkeypatch.setattr("compute_agent.scheduler.bus.running_scheduler.ANNOUNCEMENTS_TIMEOUT", 0.5)
    return Operator(tmp_path, placement.url, bus_url, capsys)


def test_hosts_are_listed_with_their_agents_and_what_is_used(
    operator: Operator, placement: PlacementProcess
) -> None:
    root = placement.tree("node1")["node1"]["uuid"]
    consumer = claim(placement, root, {"VCPU": 1})
    listed = {host["name"]: host for host in operator.json("list")}
    assert {name: host["agent"] for name, host in listed.items()} == {
        "node1": "up",
        "silent": "silent",
    }
    assert listed["node1"]["service"] == "service1"
    assert listed["node1"]["amounts"]["VCPU"]["used"] == 1
    assert listed["silent"]["amounts"]["VCPU"] == {"used": 0, "capacity": 4}
    shown = operator.run("list", "--class", "VCPU", "--sort", "used").splitlines()
    assert [line.split()[0] for line in shown] == ["host", "node1", "silent"]
    assert "MEMORY_MB" not in "".join(shown)
    assert operator.json("list", "sil") == [listed["silent"]]
    host = operator.json("show", "node1")
    assert host["consumers"] == {consumer: {root: {"VCPU": 1}}}
    assert consumer in operator.run("show", root)


def test_a_part_of_the_tree_of_a_host_is_shown_when_asked(operator: Operator) -> None:
    shown = operator.run("show", "node1", "--class", "VCPU", "--providers", "--traits")
    assert "VCPU" in shown
    assert "COMPUTE_NODE" in shown
    assert "MEMORY_MB" not in shown.partition("consumer")[0]
    operator.run("show", "node1", "--json", "--used", status=127)


def test_hosts_are_seen_while_the_broker_is_away(
    placement: PlacementProcess,
    silent: str,
    agent: AgentProcess,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    del agent
    away = f"rabbit://guest:guest@127.0.0.1:{free_port()}//"
    operator = Operator(tmp_path, placement.url, away, capsys)
    assert manage.main(["host", "list", "--json", f"--config-file={operator.config}"]) == 0
    out, err = capsys.readouterr()
    agents = {host["name"]: host["agent"] for host in json.loads(out)}
    assert agents == {"node1": "up", "silent": "unknown"}, "as placement heard of them"
    # one sentence, and no line of the library
    assert err.startswith("The message bus is unreachable")
    assert err.rstrip().endswith("Agents are known only by what placement heard of them.")
    assert len(err.splitlines()) == 1
    assert operator.json("show", silent)["agent"] == "unknown"
    # a change is made by the agent where one runs, and in placement where none was ever heard
    operator.run("disable", "silent")
    operator.run("enable", "silent")
    operator.run("disable", "node1", status=Exit.REFUSED)


def test_a_host_is_disabled_by_its_agent_where_that_is_heard(
    operator: Operator, agent: AgentProcess
) -> None:
    assert "by its agent service1" in operator.run("disable", "node1", "--reason", "fan")
    (host,) = operator.json("list", "node1")
    assert (host["is_enabled"], host["reason"]) == (False, "fan")
    assert "disabled: fan" in agent.run("status").stdout
    operator.run("enable", "node1")
    assert operator.json("list", "node1")[0]["is_enabled"]


def test_a_host_whose_agent_is_away_is_disabled_in_placement(
    operator: Operator, placement: PlacementProcess, silent: str
) -> None:
    def traits() -> set[str]:
        return set(placement.get(f"/resource_providers/{silent}/traits")["traits"])

    operator.run("disable", "silent", "--dry-run", status=6)
    planned = operator.json("disable", "silent", "--dry-run", status=6)
    assert (planned["dry_run"], planned["uuid"], planned["enabled"]) == (True, silent, False)
    assert traits() == {"COMPUTE_NODE"}
    for _ in range(2):
        assert "no agent of it was heard" in operator.run("disable", "silent")
        assert traits() == {"COMPUTE_NODE", "COMPUTE_STATUS_DISABLED"}
    operator.run("enable", silent)
    assert traits() == {"COMPUTE_NODE"}


def test_a_dry_run_has_nothing_to_do_where_a_host_is_as_wanted(operator: Operator) -> None:
    for name in ("node1", "silent"):
        assert not operator.json("enable", name, "--dry-run")["changes"]
        operator.run("disable", name, "--reason", "fan")
        assert "is disabled already" in operator.run(
            "disable", name, "--reason", "fan", "--dry-run"
        )
        assert operator.json("enable", name, "--dry-run", status=6)["changes"]
        operator.run("enable", name)
    # an agent keeps the reason, so another one is a change
    operator.run("disable", "node1", "--reason", "fan")
    operator.run("disable", "node1", "--reason", "disk", "--dry-run", status=6)
    operator.run("enable", "node1")


def test_a_drained_host_is_disabled_by_its_agent_until_the_drain_is_undone(
    operator: Operator, agent: AgentProcess, placement: PlacementProcess
) -> None:
    root = placement.tree("node1")["node1"]["uuid"]
    release_all(placement, root)
    consumer = claim(placement, root, {"VCPU": 1})
    operator.run("drain", "node1", "--dry-run", status=6)
    assert operator.json("show", "node1")["is_enabled"]
    # no scheduler knows an agent of the other host that fell silent, so it takes the consumer
    drained = operator.json("drain", "node1", "--reason", "new fan", status=8)
    assert (drained["agent"], drained["was_disabled"], drained["left_out"]) == ("up", False, [])
    assert [(move["consumer"], move["to"]) for move in drained["consumers"]] == [
        (consumer, "silent")
    ]
    host = operator.json("show", "node1")
    assert (host["is_enabled"], host["reason"]) == (False, "drain: new fan")
    again = operator.json("drain", "node1", status=8)
    assert again["was_disabled"]
    assert operator.json("show", "node1")["reason"] == "drain: new fan"
    release_all(placement, root)
    assert "node1 is empty" in operator.run("drain", "node1")
    operator.run("drain", "node1", "--undo", "--dry-run", status=6)
    assert "node1" in operator.run("drain", "node1", "--undo")
    assert operator.json("show", "node1")["is_enabled"]
    assert agent.run("status").stdout.count("disabled") == 0
    # only a drain is undone
    operator.run("disable", "node1", "--reason", "fan")
    assert "host enable node1" in operator.run("drain", "node1", "--undo", status=4)
    operator.run("enable", "node1")


def test_a_dead_host_is_drained_to_a_host_whose_agent_is_heard(
    operator: Operator, placement: PlacementProcess, silent: str
) -> None:
    release_all(placement, silent)
    consumer = claim(placement, silent, {"VCPU": 2})
    drained = operator.json("drain", "silent", status=8)
    assert (drained["agent"], drained["left_out"]) == ("silent", [])
    assert [(move["consumer"], move["to"]) for move in drained["consumers"]] == [
        (consumer, "node1")
    ]
    shown = operator.run("drain", "silent", status=8)
    assert "is disabled already" in shown
    assert "have to be evacuated" in shown
    release_all(placement, silent)
    operator.run("drain", "silent")
    operator.run("drain", "silent", "--undo")
    assert operator.json("list", "silent")[0]["is_enabled"]


def test_an_agent_reports_when_it_is_asked_and_one_that_is_away_cannot(
    operator: Operator,
) -> None:
    assert "would be asked" in operator.run("report", "node1", "--dry-run", status=6)
    assert operator.json("report", "node1", "--dry-run", status=6)["service"] == "service1"
    assert "node1: the pass completed" in operator.run("report", "node1")
    assert "The agent of host silent did not announce itself" in operator.run(
        "report", "silent", status=4
    )
    assert "no resource provider 'nobody'" in operator.run("show", "nobody", status=4)


def test_the_documented_drain_and_look_at_the_fleet(
    operator: Operator, placement: PlacementProcess
) -> None:
    release_all(placement, placement.tree("node1")["node1"]["uuid"])
    blocks = BlocksToRun("with agents on a bus")
    # a dry run has something to do
    for page, statuses in (("do/drains", (6, 0, 0)), ("do/monitoring", (0,))):
        for status in statuses:
            [[program, topic, command, *arguments]] = commands_of(blocks.next_of(page))
            assert (program, topic) == ("compute-manage", "host")
            here = ["node1" if argument == "host-17" else argument for argument in arguments]
            operator.run(command, *here, status=status)
    assert not blocks.left
