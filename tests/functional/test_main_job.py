"""The main job, end to end, in real processes: a machine in placement, and a claim on it.

placement-server on a SQLite file, compute-agent with the host driver, compute-scheduler; real HTTP
between them. Then all that lives is killed with SIGKILL and started again.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.functional.agent.processes import (
    BIN,
    PATIENCE,
    AgentProcess,
    PlacementProcess,
    running_placement,
)

TWO_CELLS = Path(__file__).parents[1] / "data" / "two-cells"
VGPU_TYPE = "nvidia-222"


@pytest.fixture
def placement(tmp_path: Path) -> Iterator[PlacementProcess]:
    with running_placement(tmp_path / "placement") as server:
        yield server


@pytest.fixture
def agent(
    tmp_path: Path, placement: PlacementProcess, request: pytest.FixtureRequest
) -> Iterator[AgentProcess]:
    directory = tmp_path / "agent"
    directory.mkdir()
    process = AgentProcess(directory, placement.url, **request.param)
    yield process
    process.cleanup()


def scheduler(agent: AgentProcess, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(BIN / "compute-scheduler"), f"--config-file={agent.config}", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=dict(os.environ),
        check=False,
    )


def claimed(agent: AgentProcess, *arguments: str) -> str:
    """Claim and return the consumer."""
    done = scheduler(agent, "claim", *arguments, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(done.stdout)
    consumer: str = document["consumer"]
    return consumer


def name_of(agent: AgentProcess) -> str:
    name: str = agent.started()["nodes"][0]["name"]
    return name


CAPTURED = {
    "DEFAULT": {"compute_driver": "host.HostDriver", "host": "two-cells.example.org"},
    "host": {"sysfs_root": TWO_CELLS / "sys", "procfs_root": TWO_CELLS / "proc"},
    "compute": {"enable_numa_reporting_to_placement": True},
    "devices": {"enabled_mdev_types": VGPU_TYPE},
}
LIVE = {"DEFAULT": {"compute_driver": "host.HostDriver"}}


def after_kill_9(agent: AgentProcess, placement: PlacementProcess) -> None:
    """Kill every process and start it again."""
    assert agent.process is not None
    agent.process.kill()
    agent.process.wait()
    placement.kill()
    placement.start()
    agent.start()
    agent.started()


@pytest.mark.parametrize("agent", [CAPTURED], indirect=True)
def test_a_captured_machine_is_reported_claimed_on_and_found_again_after_kill_9(agent, placement):
    agent.start()
    name = name_of(agent)
    tree = placement.tree(name)
    assert tree[name]["parent"] is None
    for cell in ("0", "1"):
        numa = tree[f"{name}_NUMA{cell}"]
        assert numa["parent"] == name
        assert numa["inventories"]["VCPU"]["total"] == 8
        assert "HW_NUMA_ROOT" in numa["traits"]
    ports = [p for p in tree.values() if p["inventories"].get("SRIOV_NET_VF")]
    assert [p["inventories"]["SRIOV_NET_VF"]["total"] for p in ports] == [8, 8]
    gpus = [p for p in tree.values() if p["inventories"].get("VGPU")]
    assert {gpu["parent"] for gpu in gpus} == {f"{name}_NUMA0", f"{name}_NUMA1"}
    consumer = claimed(
        agent,
        *("--resources", "VCPU=2,MEMORY_MB=512", "--group", "NIC:SRIOV_NET_VF=1"),
        *("--group", "GPU:VGPU=1", "--group-policy", "none"),
    )
    held = placement.held(consumer)
    amounts = sorted((rc, n) for resources in held.values() for rc, n in resources.items())
    assert amounts == [("MEMORY_MB", 512), ("SRIOV_NET_VF", 1), ("VCPU", 2), ("VGPU", 1)]

    after_kill_9(agent, placement)

    assert placement.tree(name) == tree
    assert placement.held(consumer) == held
    assert scheduler(agent, "release", consumer).returncode == 0
    assert placement.held(consumer) == {}
    assert agent.stop() == 0


@pytest.mark.parametrize("agent", [LIVE], indirect=True)
def test_this_very_machine_is_reported_claimed_on_and_found_again_after_kill_9(agent, placement):
    agent.start()
    name = name_of(agent)
    tree = placement.tree(name)
    root = tree[name]
    assert root["inventories"]["VCPU"]["total"] == os.sysconf("SC_NPROCESSORS_ONLN")
    assert root["inventories"]["MEMORY_MB"]["total"] > 0
    assert root["inventories"]["DISK_GB"]["total"] > 0
    assert {"COMPUTE_NODE", "OWNER_NOVA"} <= set(root["traits"])
    consumer = claimed(agent, "--resources", "VCPU=1,MEMORY_MB=64")
    held = placement.held(consumer)
    assert held == {root["uuid"]: {"VCPU": 1, "MEMORY_MB": 64}}

    after_kill_9(agent, placement)

    assert placement.tree(name) == tree
    assert placement.held(consumer) == held
    shown = agent.run("show", "--details")
    assert shown.returncode == 0
    vcpu = next(line.split() for line in shown.stdout.splitlines() if "VCPU" in line)
    columns = dict(zip(("total", "reserved", "ratio", "used/capacity"), vcpu[-4:], strict=True))
    assert columns["used/capacity"].startswith("1/")
    assert scheduler(agent, "release", consumer).returncode == 0
    assert placement.held(consumer) == {}


@pytest.mark.parametrize("agent", [LIVE], indirect=True)
def test_a_request_that_fits_nowhere_is_refused_with_the_reason(agent, placement):
    agent.start()
    name_of(agent)
    refused = scheduler(agent, "claim", "--resources", "VCPU=100000")
    assert refused.returncode not in (0, 255)
    assert "No valid host was found" in refused.stderr
