"""Layouts of drivers: accepted by a placement server, and found again as they were left."""

from __future__ import annotations

import uuid as uuidlib
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from compute_agent import errors
from compute_agent.conf import new_config
from compute_agent.discovery.facts import NvLink
from compute_agent.discovery.pci_address import pci_address
from compute_agent.placement.candidates import Candidates
from compute_agent.placement.transports.in_process import InProcessTransport
from compute_agent.provider_tree import ProviderTree
from compute_agent.report.client import ReportClient
from compute_agent.tracker.passes import corrections, reshape_check
from compute_agent.virt import fake
from compute_agent.virt.driver import ComputeDriver, InstanceDevices
from compute_agent.virt.layout.device_spec import parse_device_specs
from compute_agent.virt.layout.options import PciOptions
from compute_agent.virt.loading import load_driver
from tests.fixtures.allocations import amounts_of, claim_body
from tests.functional.either_placement import ours

DRIVERS = ["host.HostDriver", *(f"fake.{name}" for name in fake.__all__)]
CAPTURED = """[host]
sysfs_root = tests/data/two-cells/sys
procfs_root = tests/data/two-cells/proc
[compute]
enable_numa_reporting_to_placement = True
[devices]
enabled_mdev_types = nvidia-222
"""
EXTRA = {
    "host.HostDriver": CAPTURED,
    "fake.FakeMisbehavingDriver": "[fake]\nfailing_call = 1000\n",
}


@pytest.fixture(scope="session")
def placement(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One server per test process; tests keep apart by names and uuids of their own."""
    return ours(tmp_path_factory.mktemp("virt"))


class Node:
    """A driver, the report client, and what the tracker does between them."""

    def __init__(self, placement: Any, driver: ComputeDriver, root: str) -> None:
        self.client = ReportClient(InProcessTransport(placement))
        self.client.connect()
        self.driver = driver
        self.root = root
        self.name = driver.get_available_nodes()[0]

        def held(uuid: str) -> Mapping[str, int]:
            consumers = self.client.get_allocations_for_provider(uuid).values()
            return dict(sum((Counter(record["resources"]) for record in consumers), Counter()))

        driver.usage_source = held

    def current(self) -> ProviderTree:
        return self.client.get_provider_tree_and_ensure_root(self.root, self.name)

    def update(self, *, reshape: bool = False) -> list[Any]:
        """One pass; the steps it took."""
        base = self.current()
        wanted = base.snapshot()
        before = allocations = None
        if reshape:
            before = self.client.get_allocations_for_provider_tree(self.root)
            allocations = reshape_check.editable(before)
            self.driver.update_provider_tree(wanted, self.name, allocations=allocations)
            reshape_check.check(base, wanted, before, allocations, self.root)
        else:
            self.driver.update_provider_tree(wanted, self.name)
        report = self.client.update_from_provider_tree(
            base,
            wanted,
            allocations=allocations,
            original_allocations=before,
            is_ours=lambda uuid: corrections.is_marked(base.data(uuid)),
        )
        return list(report.steps)

    def uuid(self, suffix: str) -> str:
        return self.current().data(f"{self.name}{suffix}").uuid

    def exists(self, suffix: str) -> bool:
        return self.current().exists(f"{self.name}{suffix}")

    def claim(self, held: Mapping[str, Mapping[str, int]]) -> str:
        """A new consumer that holds these amounts, by provider uuid."""
        consumer = str(uuidlib.uuid4())
        self.client.placement.allocations.put_allocations(consumer, claim_body(held))
        assert self.held(consumer) == held
        return consumer

    def held(self, consumer: str) -> dict[str, dict[str, int]]:
        return amounts_of(self.client.placement.allocations.get_allocs_for_consumer(consumer))


MakeNode = Callable[..., Node]


@pytest.fixture
def make_node(placement: Any, tmp_path: Path) -> MakeNode:
    def make(name: str = "fake.FakeNumaDriver", text: str = "") -> Node:
        root = str(uuidlib.uuid4())
        path = tmp_path / "agent.conf"
        (tmp_path / "instances").mkdir(exist_ok=True)
        path.write_text(
            f"[DEFAULT]\nhost = host-{root[:8]}\nstate_path = {tmp_path}\n"
            f"instances_path = {tmp_path}/instances\n{text or EXTRA.get(name, '')}"
        )
        conf = new_config(["--config-file", str(path)], default_config_dirs=[])
        driver = load_driver(name, conf)
        driver.init_host("x")
        return Node(placement, driver, root)

    return make


@pytest.mark.parametrize("name", DRIVERS)
def test_what_a_driver_reports_is_accepted_and_a_restart_changes_nothing(
    make_node: MakeNode, placement: Any, name: str
) -> None:
    node = make_node(name)
    assert node.update()
    restarted = Node(placement, node.driver, node.root)
    assert restarted.update() == []


def with_layout(node: Node, *, nested: bool) -> None:
    node.driver.options = replace(node.driver.options, is_nested=nested)  # type: ignore[attr-defined]


def test_consumers_are_moved_to_cells_and_back_in_one_reshape_each(make_node: MakeNode) -> None:
    node = make_node(text="[fake]\ngpus = 2\nnics = 1\n")
    with_layout(node, nested=False)
    node.update()
    gpu = node.uuid("_pci_0000_20_00_0")
    before = {
        node.claim(held): dict(held)
        for held in (
            {node.root: {"VCPU": 2, "MEMORY_MB": 4096, "DISK_GB": 10}},
            {node.root: {"VCPU": 20, "MEMORY_MB": 100_000}, gpu: {"VGPU": 1}},
            {gpu: {"VGPU": 2}},
        )
    }
    with_layout(node, nested=True)
    with pytest.raises(errors.ReshapeNeeded):
        node.update()
    node.update(reshape=True)
    cells = {node.uuid("_NUMA0"), node.uuid("_NUMA1")}
    small, large, untouched = (node.held(consumer) for consumer in before)
    assert small[node.root] == {"DISK_GB": 10}
    assert len(cells & small.keys()) == 1
    assert cells < large.keys()
    assert untouched == {gpu: {"VGPU": 2}}
    assert node.update() == []

    with_layout(node, nested=False)
    node.update(reshape=True)
    assert {consumer: node.held(consumer) for consumer in before} == before
    assert not node.exists("_NUMA0")
    assert node.update() == []


def test_a_device_that_disappears_in_use_stays_until_it_is_released(make_node: MakeNode) -> None:
    node = make_node(text="[fake]\ngpus = 2\nnics = 0\n")
    node.update()
    gpu = node.uuid("_pci_0000_21_00_0")
    consumer = node.claim({gpu: {"VGPU": 3}})
    machine = node.driver.machine  # type: ignore[attr-defined]
    node.driver.machine = replace(machine, gpus=machine.gpus[:1])  # type: ignore[attr-defined]
    node.update()
    device = node.current().data(gpu)
    assert (device.inventory["VGPU"]["total"], device.inventory["VGPU"]["reserved"]) == (3, 3)
    assert "CUSTOM_DEVICE_MISSING" in device.traits
    assert node.update() == []
    node.client.placement.allocations.delete_allocation(consumer, force=True)
    node.update()
    assert not node.exists("_pci_0000_21_00_0")


def test_gpus_that_swap_their_slots_keep_their_providers(make_node: MakeNode) -> None:
    node = make_node(text="[fake]\ngpus = 2\nnics = 0\n")
    node.update()
    first, second = (f"_pci_0000_2{i}_00_0" for i in (0, 1))
    uuids = (node.uuid(first), node.uuid(second))
    one, two = node.driver.machine.gpus  # type: ignore[attr-defined]
    swapped = (
        replace(two, address=one.address, numa_node=one.numa_node),
        replace(one, address=two.address, numa_node=two.numa_node),
    )
    node.driver.machine = replace(node.driver.machine, gpus=swapped)  # type: ignore[attr-defined]
    node.update()
    assert (node.uuid(second), node.uuid(first)) == uuids
    assert node.update() == []


def test_a_provider_of_another_service_is_taken_over_as_it_is(make_node: MakeNode) -> None:
    node = make_node(text="[fake]\ngpus = 1\nnics = 0\n")
    base = node.current()
    theirs = base.snapshot()
    theirs_uuid = theirs.new_child(f"{node.name}_pci_0000_20_00_0", node.root, str(uuidlib.uuid4()))
    theirs.update_inventory(theirs_uuid, {"VGPU": {"total": 4}})
    node.client.update_from_provider_tree(base, theirs)
    consumer = node.claim({theirs_uuid: {"VGPU": 1}})
    node.update()
    taken_over = node.current().data(f"{node.name}_pci_0000_20_00_0")
    assert taken_over.uuid == theirs_uuid
    assert "OWNER_NOVA" in taken_over.traits
    assert taken_over.parent_uuid == node.uuid("_NUMA0")
    assert node.held(consumer) == {theirs_uuid: {"VGPU": 1}}


def test_guests_get_allocations_for_devices_that_placement_begins_to_count(
    make_node: MakeNode,
) -> None:
    node = make_node("fake.FakeDriverWithPciResources")
    node.update()
    guest = node.claim({node.root: {"VCPU": 1}})
    device = pci_address("0001:80:00.0")
    node.driver.spawn(guest, devices=InstanceDevices(pci_addresses=(device,)))  # type: ignore[attr-defined]
    specs = parse_device_specs(['{"product_id": "1889"}'], report=True)
    options = node.driver.options  # type: ignore[attr-defined]
    node.driver.options = replace(options, pci=PciOptions(True, specs))  # type: ignore[attr-defined]
    with pytest.raises(errors.ReshapeNeeded, match=guest):
        node.update()
    node.update(reshape=True)
    port = node.uuid("_0000:80:00.0")
    assert node.held(guest) == {node.root: {"VCPU": 1}, port: {"CUSTOM_PCI_8086_1889": 1}}
    assert node.update() == []


SWITCHED = """[compute]
enable_numa_reporting_to_placement = True
[devices]
enabled_mdev_types = nvidia-35
[pci]
report_root_ports = True
[fake]
cells = 2
gpus = 4
nics = 2
"""


def behind(node: Node, **port_of_bus: str) -> None:
    """Put devices of the node's machine behind switches: root port by bus."""
    machine = node.driver.machine  # type: ignore[attr-defined]
    devices = tuple(
        replace(device, bridges=(port_of_bus[f"b{bus}"], "0000:17:00.0", "0000:18:00.0"))
        if not device.is_vf and f"b{(bus := device.address[5:7])}" in port_of_bus
        else device
        for device in machine.pci_devices
    )
    node.driver.machine = replace(machine, pci_devices=devices)  # type: ignore[attr-defined]


def candidates(node: Node, query: str) -> list[set[str]]:
    """Names of the providers of each candidate of the node."""
    asked = [tuple(part.split("=", 1)) for part in query.split("&")]
    answer, _ = Candidates(node.client.placement.connection).get_allocation_candidates(asked)
    tree = node.current()
    return [
        {tree.data(uuid).name.removeprefix(node.name) for uuid in candidate.allocations}
        for candidate in answer.allocation_requests
        if all(tree.exists(uuid) for uuid in candidate.allocations)
    ]


TOGETHER = "resources_G=VGPU:1&resources_N=SRIOV_NET_VF:1&group_policy=none"


def test_a_gpu_and_a_function_behind_one_switch_can_be_asked_for(make_node: MakeNode) -> None:
    node = make_node(text=SWITCHED)
    behind(node, b20="0000:16:01.0", b80="0000:16:01.0", b21="0000:96:01.0", b23="0000:96:01.0")
    node.update()
    assert len(candidates(node, TOGETHER)) > 2
    query = f"{TOGETHER}&required_S=CUSTOM_PCIE_ROOT&same_subtree=_G,_N,_S"
    found = candidates(node, query)
    assert found
    assert all("_pci_0000_20_00_0" in names for names in found)
    assert all(any(name.startswith("_0000:80:") for name in names) for names in found)
    cell = "&resources_C=VCPU:1&required_C=HW_NUMA_ROOT&same_subtree=_C,_S"
    assert all("_NUMA0" in names for names in candidates(node, query + cell))


def test_two_gpus_that_nvlinks_join_can_be_asked_for(make_node: MakeNode) -> None:
    node = make_node(text=SWITCHED.replace("[pci]\nreport_root_ports = True\n", ""))
    machine = node.driver.machine  # type: ignore[attr-defined]
    pair = {"0000:20:00.0": "0000:23:00.0", "0000:23:00.0": "0000:20:00.0"}
    gpus = tuple(
        replace(gpu, nvlinks=(NvLink(pci_address(pair[gpu.address]), "gpu", 4),))
        if gpu.address in pair
        else gpu
        for gpu in machine.gpus
    )
    node.driver.machine = replace(machine, gpus=gpus)  # type: ignore[attr-defined]
    node.update()
    group = "CUSTOM_NVLINK_GROUP_0"
    query = f"resources1=VGPU:1&required1={group}&resources2=VGPU:1&required2={group}"
    found = candidates(node, f"{query}&group_policy=isolate")
    assert found
    assert all(names == {"_pci_0000_20_00_0", "_pci_0000_23_00_0"} for names in found)
