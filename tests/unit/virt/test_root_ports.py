"""Devices that hang together: behind one PCI root port, and joined by NVLinks."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from compute_agent.discovery.facts import HostTopology, NvLink, PciAddress
from compute_agent.provider_tree import ProviderData, ProviderTree
from compute_agent.virt.fake.topology import MDEV_TYPE, MachineSize, fake_topology
from compute_agent.virt.layout import LayoutOptions, lay_out
from compute_agent.virt.layout.names import device_address, is_ours
from compute_agent.virt.layout.options import GpuOptions, MdevTypeOptions, PciOptions

from .hosts import NAME, Host, content, reported
from .wanted_providers import named, names

SIZE = MachineSize(
    cells=2, cpus_per_cell=4, memory_mib_per_cell=8192, gpus=4, nics=2, pfs_per_nic=1, vfs_per_pf=2
)
PORT, OTHER = PciAddress("0000:16:01.0"), PciAddress("0000:96:01.0")
SWITCH = (PciAddress("0000:17:00.0"), PciAddress("0000:18:02.0"))
NESTED = LayoutOptions(
    is_nested=True,
    reserved_memory_mib=0,
    gpu=GpuOptions(mdev_types=(MdevTypeOptions(MDEV_TYPE),)),
    pci=PciOptions(report_root_ports=True),
)
OFF = replace(NESTED, pci=PciOptions())


def machine(ports: Mapping[str, PciAddress]) -> HostTopology:
    """A machine whose GPUs 20, 22 and card 80 are near cell 0, and 21, 23 and 81 near cell 1.

    :param ports: root port by bus of the device; the others are behind one of their own.
    """
    facts = fake_topology("host1", SIZE)
    devices = tuple(
        device
        if device.is_vf
        else replace(device, bridges=(ports[bus], *SWITCH))
        if (bus := device.address[5:7]) in ports
        else replace(device, bridges=(PciAddress(f"0000:{bus}:1f.0"),))
        for device in facts.pci_devices
    )
    return replace(facts, pci_devices=devices)


def below(facts: HostTopology, options: LayoutOptions = NESTED) -> dict[str, str]:
    layout = lay_out("host1", facts, options)
    name_of = {provider.key: provider.name.removeprefix("host1") for provider in layout.providers}
    return {name_of[p.key]: name_of[p.parent] for p in layout.children}


def test_devices_behind_one_root_port_hang_below_it_and_it_below_their_cell() -> None:
    facts = machine({"20": PORT, "80": PORT, "21": OTHER, "23": OTHER})
    parents = below(facts)
    assert parents["_PCIE_0000:16:01.0"] == "_NUMA0"
    assert parents["_pci_0000_20_00_0"] == parents["_NIC_0000:80:00.0"] == "_PCIE_0000:16:01.0"
    assert parents["_0000:80:00.0"] == "_NIC_0000:80:00.0"
    assert parents["_pci_0000_21_00_0"] == parents["_pci_0000_23_00_0"] == "_PCIE_0000:96:01.0"
    assert parents["_PCIE_0000:96:01.0"] == "_NUMA1"
    assert parents["_pci_0000_22_00_0"] == "_NUMA0", "alone behind its port"


def test_a_root_port_has_nothing_of_its_own_but_a_trait() -> None:
    layout = lay_out("host1", machine({"20": PORT, "22": PORT}), NESTED)
    provider = named(layout, "_PCIE_0000:16:01.0")
    assert (provider.inventory, provider.traits) == ({}, {"CUSTOM_PCIE_ROOT"})


def test_functions_of_one_slot_are_one_device() -> None:
    facts = machine({"80": PORT})
    specs = replace(SIZE, pfs_per_nic=2)
    two_ports = fake_topology("host1", specs)
    devices = tuple(
        d if d.is_vf else replace(d, bridges=(PORT,)) if d.address[5:7] == "80" else d
        for d in two_ports.pci_devices
    )
    assert not any("PCIE" in name for name in below(facts))
    assert not any("PCIE" in name for name in below(replace(two_ports, pci_devices=devices)))


def test_without_the_option_the_tree_is_as_it_was() -> None:
    facts = machine({"20": PORT, "80": PORT})
    assert below(facts, OFF) == below(fake_topology("host1", SIZE), OFF)


def test_devices_of_different_cells_behind_one_port_stay_where_they_are() -> None:
    assert not any("PCIE" in name for name in below(machine({"20": PORT, "21": PORT})))


def test_a_flat_host_has_the_root_port_below_its_root() -> None:
    flat = replace(NESTED, is_nested=False)
    layout = lay_out("host1", machine({"20": PORT, "21": PORT}), flat)
    assert named(layout, "_PCIE_0000:16:01.0").parent == ""


def test_parents_come_before_children() -> None:
    layout = lay_out("host1", machine({"20": PORT, "80": PORT, "22": PORT}), NESTED)
    seen: set[str] = set()
    for provider in layout.providers:
        assert provider.is_root or provider.parent in seen
        seen.add(provider.key)
    assert names(layout).count("_PCIE_0000:16:01.0") == 1


def by_name(tree: ProviderTree) -> dict[str, ProviderData]:
    return {provider.name: provider for provider in content(tree)}


def test_switching_it_on_and_off_only_moves_devices_that_keep_their_uuids() -> None:
    facts = replace(machine({"20": PORT, "80": PORT}), hostname=NAME)
    host = Host(facts, OFF)
    before = by_name(host.update())
    host.driver.options = NESTED
    host.update()
    assert host.parent_name("_pci_0000_20_00_0") == "_PCIE_0000:16:01.0"
    assert host.parent_name("_0000:80:00.0") == "_NIC_0000:80:00.0"
    host.driver.options = OFF
    assert by_name(host.update()) == before


def test_a_host_that_becomes_nested_and_gets_root_ports_at_once() -> None:
    facts = machine({"20": PORT, "80": PORT})
    host = reported(facts, replace(OFF, is_nested=False))
    host.driver.options = NESTED
    host.reshape({})
    assert host.parent_name("_PCIE_0000:16:01.0") == "_NUMA0"
    assert host.parent_name("_pci_0000_20_00_0") == "_PCIE_0000:16:01.0"


def test_the_name_of_a_root_port_is_ours_and_no_devices() -> None:
    assert is_ours("host1", "host1_PCIE_0000:16:01.0")
    assert device_address("host1", "host1_PCIE_0000:16:01.0") is None


def linked(**links: list[NvLink] | None) -> HostTopology:
    facts = fake_topology("host1", SIZE)
    gpus = tuple(
        replace(gpu, nvlinks=None if found is None else tuple(found))
        for gpu in facts.gpus
        for found in [links.get(f"gpu{gpu.address[5:7]}", [])]
    )
    return replace(facts, gpus=gpus)


def groups(facts: HostTopology, options: LayoutOptions = OFF) -> dict[str, list[str]]:
    layout = lay_out("host1", facts, options)
    return {
        p.name[-7:-5]: [t for t in sorted(p.traits) if "NVLINK" in t]
        for p in layout.providers
        if "_pci_" in p.name
    }


def to(bus: str, kind: str = "gpu") -> NvLink:
    return NvLink(PciAddress(f"0000:{bus}:00.0"), kind, 4)


def test_gpus_that_are_linked_directly_are_a_group() -> None:
    facts = linked(gpu20=[to("22")], gpu22=[to("20")], gpu21=[to("23")], gpu23=[to("21")])
    first, second = ["CUSTOM_NVLINK_GROUP_0"], ["CUSTOM_NVLINK_GROUP_1"]
    assert groups(facts) == {"20": first, "22": first, "21": second, "23": second}


def test_gpus_on_one_switch_are_a_group_and_one_that_has_no_links_is_in_none() -> None:
    switch = to("a5", "switch")
    group = ["CUSTOM_NVLINK_GROUP_0"]
    facts = linked(gpu20=[switch], gpu21=[switch], gpu22=[switch])
    assert groups(facts) == {"20": group, "21": group, "22": group, "23": []}


def test_gpus_linked_over_a_third_are_one_group() -> None:
    facts = linked(gpu20=[to("21")], gpu21=[to("20"), to("22")], gpu22=[to("21")])
    assert groups(facts)["22"] == ["CUSTOM_NVLINK_GROUP_0"]


def test_gpus_of_one_xgmi_hive_are_a_group() -> None:
    facts = fake_topology("host1", SIZE)
    hives = ("77", "33", None, "77")
    gpus = tuple(replace(gpu, link_group=hive) for gpu, hive in zip(facts.gpus, hives, strict=True))
    layout = lay_out("host1", replace(facts, gpus=gpus), OFF)
    traits = [p.traits for p in layout.providers if "_pci_" in p.name]
    assert ["CUSTOM_XGMI_GROUP_0" in found for found in traits] == [True, False, False, True]


def test_links_to_a_cpu_join_no_gpus() -> None:
    cpu = to("04", "cpu")
    assert groups(linked(gpu20=[cpu], gpu21=[cpu]))["20"] == []


@pytest.mark.parametrize(("links", "stays"), [(None, True), ([], False)])
def test_a_group_is_taken_off_where_there_are_no_links_and_left_where_that_is_unknown(
    links: list[NvLink] | None, stays: bool
) -> None:
    host = Host(replace(linked(gpu20=[to("22")], gpu22=[to("20")]), hostname=NAME), OFF)
    host.update()
    facts = linked(gpu20=links, gpu22=links)
    host.driver.machine = facts
    host.update()
    assert ("CUSTOM_NVLINK_GROUP_0" in host.provider("_pci_0000_20_00_0").traits) is stays


def test_the_traits_can_be_left_out() -> None:
    options = replace(OFF, gpu=replace(OFF.gpu, nvlink_traits=False))
    facts = linked(gpu20=[to("22")], gpu22=[to("20")])
    assert groups(facts, options)["20"] == []
