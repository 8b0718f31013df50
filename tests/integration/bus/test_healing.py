"""Agents that ask one another over a real RabbitMQ before one of them deletes an allocation."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from compute_agent import conf as agent_conf
from compute_agent.daemon import message_bus
from compute_agent.scheduler.bus.rpc import SchedulerClient
from tests.fixtures import programs
from tests.fixtures.allocations import claim_body
from tests.fixtures.plain_trees import make_provider
from tests.functional.agent.processes import (
    AgentProcess,
    PlacementProcess,
    claim,
    eventually,
    running,
    running_placement,
)
from tests.functional.scheduler.conftest import write_config

pytestmark = pytest.mark.waiting


@pytest.fixture
def placement(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlacementProcess]:
    """A placement of one test: both have hosts of the same names."""
    with running_placement(tmp_path_factory.mktemp("placement")) as server:
        yield server


@pytest.fixture
def agents(
    tmp_path_factory: pytest.TempPathFactory, placement: PlacementProcess, bus_url: str
) -> Iterator[list[AgentProcess]]:
    """Two agents, of which the first may heal."""
    made = []
    for name in ("healer", "other"):
        agent = AgentProcess(
            tmp_path_factory.mktemp(name),
            placement.url,
            DEFAULT={"transport_url": bus_url, "host": name, "report_interval": 1},
            compute_agent={
                "audit_interval": 1,
                "audit_grace": 0,
                "heal_orphans": name == "healer",
            },
        )
        agent.script(nodes=[name])
        made.append(agent)
    with running(made[0]), running(made[1]):
        yield made


def test_only_what_no_agent_runs_and_no_silent_host_may_run_is_deleted(
    placement: PlacementProcess, agents: list[AgentProcess]
) -> None:
    healer, other = agents
    root, elsewhere = (placement.tree(name)[name]["uuid"] for name in ("healer", "other"))
    silent = make_provider(placement.send, "silent", {"VCPU": 4}, ["COMPUTE_NODE"])

    running_there, wide, gone = (str(uuid.uuid4()) for _ in range(3))
    other.script(nodes=["other"], instances=[running_there])
    claim(placement, root, {"VCPU": 1}, running_there)
    on_both = claim_body({host: {"VCPU": 1} for host in (root, silent)})
    placement.send("PUT", f"/allocations/{wide}", on_both)
    foreign = claim(placement, elsewhere, {"VCPU": 1})
    claim(placement, root, {"VCPU": 1}, gone)

    eventually(lambda: healer.report() and not placement.held(gone), f"deleted; {healer.logged()}")
    assert placement.held(running_there)
    assert placement.held(wide)
    assert placement.held(foreign), "what is on another host is that host's to judge"
    assert healer.node()["trouble"] is None
    assert "cannot be healed" not in healer.logged()


def test_a_claim_of_a_scheduler_is_on_its_way_until_it_arrives_or_the_scheduler_is_gone(
    placement: PlacementProcess,
    agents: list[AgentProcess],
    bus_url: str,
    tmp_path: Path,
) -> None:
    """Its instance is on no host yet, and older than the time of grace."""
    healer, _other = agents
    file = write_config(tmp_path / "scheduler.conf", placement.url)
    file.write_text(
        file.read_text().replace("[DEFAULT]\n", f"[DEFAULT]\ntransport_url = {bus_url}\n")
    )
    late, abandoned, by_command = (str(uuid.uuid4()) for _ in range(3))
    log = tmp_path / "scheduler.log"
    with log.open("wb") as output:
        scheduler = programs.start(
            "compute-scheduler", "--config-file", str(file), "serve", output=output
        )
    try:
        eventually(lambda: "Serving topic scheduler" in log.read_text(), log.read_text())
        transport = message_bus.open_transport(agent_conf.new_config([f"--config-file={file}"]))
        client = SchedulerClient(transport)
        for instance in (late, abandoned):
            spec = {
                "project_id": "p",
                "user_id": "u",
                "requested_destination": {"host": "healer"},
                "flavor": {"vcpus": 1, "memory_mb": 64},
            }
            client.call("claim", spec_obj=spec, instance_uuid=instance)
        transport.cleanup()
        # the process of the command ends; the schedulers that run remember its claim
        claimed = programs.run(
            *("compute-scheduler", "--config-file", str(file), "claim", "--resources=VCPU=1"),
            *("--host=healer", "--consumer", by_command),
            timeout=60,
        )
        assert claimed.returncode == 0, claimed.stderr
        # what nobody claimed is deleted: audits run, and look at the others too
        root = placement.tree("healer")["healer"]["uuid"]
        for _ in range(2):
            gone = claim(placement, root, {"VCPU": 1})
            eventually(lambda gone=gone: not placement.held(gone), healer.logged())
        assert all(placement.held(consumer) for consumer in (late, abandoned, by_command))
        healer.script(nodes=["healer"], instances=[late])
    finally:
        scheduler.kill()
        scheduler.wait(60)
    for consumer in (abandoned, by_command):
        eventually(lambda consumer=consumer: not placement.held(consumer), healer.logged())
    assert placement.held(late)
