"""The agent with the published openstack-placement: it takes the place of Nova's own reporting."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from tests.functional.agent.processes import AgentProcess, claim, running

pytestmark = pytest.mark.waiting

MACHINE = {"cells": 2, "cpus_per_cell": 4, "gpus": 2, "nics": 1, "vfs_per_pf": 4}
QUIET = {"update_resources_interval": -1, "periodic_fuzzy_delay": 0}


def fake_machine(driver: str, node: str) -> dict[str, Any]:
    """Options of an agent that reports a machine which does not exist."""
    return {
        "DEFAULT": {**QUIET, "compute_driver": driver, "host": node},
        "fake": MACHINE,
        "devices": {"enabled_mdev_types": "nvidia-35"},
    }


def sums(held_by: dict[str, dict[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for resources in held_by.values():
        for resource_class, amount in resources.items():
            total[resource_class] = total.get(resource_class, 0) + amount
    return total


def test_a_host_is_reported_under_the_names_that_nova_expects(published, new_agent, node):
    agent = new_agent(published.url, **fake_machine("fake.FakeDriverWithPciResources", node))
    agent.configure(
        pci={
            "report_in_placement": True,
            "device_spec": '{"vendor_id": "8086", "product_id": "1889"}',
        },
    )
    with running(agent):
        tree = published.tree(node)
    root = tree[node]
    assert root["parent"] is None
    assert root["uuid"] == (agent.state / "compute_id").read_text().strip()
    assert {"VCPU", "MEMORY_MB", "DISK_GB"} <= root["inventories"].keys()
    assert "COMPUTE_NODE" in root["traits"]
    devices = {name: provider for name, provider in tree.items() if name != node}
    assert f"{node}_0000:80:00.0" in devices
    for device in devices.values():
        assert device["parent"] == node
        assert {"OWNER_NOVA", "COMPUTE_MANAGED_PCI_DEVICE"} <= set(device["traits"])
        (record,) = device["inventories"].values()
        assert list(device["inventories"]) == ["CUSTOM_PCI_8086_1889"]
        assert record["total"] == 4, "virtual functions are counted on their PF"


def test_cells_gpus_and_ports_are_named_after_their_host(published, new_agent, node):
    with running(new_agent(published.url, **fake_machine("fake.FakeNumaDriver", node))):
        tree = published.tree(node)
    assert tree[f"{node}_NUMA0"]["parent"] == node
    assert tree[f"{node}_pci_0000_20_00_0"]["parent"] == f"{node}_NUMA0"
    assert tree[f"{node}_pci_0000_20_00_0"]["inventories"]["VGPU"]["total"] == 4
    assert tree[f"{node}_NIC_0000:80:00.0"]["parent"] == f"{node}_NUMA0"
    assert tree[f"{node}_0000:80:00.0"]["parent"] == f"{node}_NIC_0000:80:00.0"
    assert all(name == node or name.startswith(f"{node}_") for name in tree)


def test_a_steady_pass_is_one_request_and_a_restart_writes_nothing(published, new_agent, node):
    agent: AgentProcess = new_agent(published.url, **fake_machine("fake.FakeNumaDriver", node))
    with running(agent):
        before = published.tree(node)
        for _ in range(2):
            last = agent.report()["last_pass"]
            assert (last["requests"], last["writes"]) == (1, 0)
        assert agent.stop(signal.SIGKILL) == -signal.SIGKILL
    with running(agent):
        last = agent.node()["last_pass"]
        assert last["writes"] == 0
        assert last["requests"] <= 2, "the versions, and the tree"
        assert agent.stop() == 0
    assert published.tree(node) == before


def test_a_reshape_at_start_moves_allocations_to_the_cells_and_the_next_one_back(
    published, new_agent, node
):
    agent: AgentProcess = new_agent(published.url, **fake_machine("fake.FakeReshapeDriver", node))
    with running(agent):
        agent.stop()
    flat = published.tree(node)
    root, gpu = flat[node]["uuid"], flat[f"{node}_pci_0000_20_00_0"]["uuid"]
    guests = {
        claim(published, root, {"VCPU": 2, "MEMORY_MB": 1024, "DISK_GB": 1}): root,
        claim(published, root, {"VCPU": 6, "MEMORY_MB": 70000}): root,
        claim(published, gpu, {"VGPU": 3}): gpu,
    }
    originally = {consumer: published.held(consumer) for consumer in guests}
    with running(agent):
        agent.stop()
    nested = published.tree(node)
    assert "VCPU" not in nested[node]["inventories"]
    cells = {nested[f"{node}_NUMA{number}"]["uuid"] for number in range(2)}
    moved = {consumer: published.held(consumer) for consumer in guests}
    for consumer, before in originally.items():
        assert sums(moved[consumer]) == sums(before)
        holders = {p for p, resources in moved[consumer].items() if "VCPU" in resources}
        assert holders <= cells
    assert moved[next(iter(guests))].keys() & {root}, "its disk is on the root still"
    with running(agent):
        agent.stop()
    assert {consumer: published.held(consumer) for consumer in guests} == originally
    back = published.tree(node)
    assert back[node]["inventories"]["VCPU"]["total"] == 8
    assert f"{node}_NUMA0" not in back
