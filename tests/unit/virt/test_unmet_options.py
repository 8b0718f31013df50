"""Options that name nothing of the machine, and parts of it that no option reports."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from compute_agent.discovery import capture
from compute_agent.discovery.facts import HostTopology, MemoryEncryption, NicPort, PciAddress
from compute_agent.virt.cpu_sets import CpuSets
from compute_agent.virt.fake.topology import MDEV_TYPE, MachineSize, fake_topology
from compute_agent.virt.layout import LayoutOptions, lay_out
from compute_agent.virt.layout.device_spec import parse_device_specs
from compute_agent.virt.layout.options import GpuOptions, MdevTypeOptions, NicOptions, PciOptions
from compute_agent.virt.layout.unmet_options import unreported
from tests.data.make_two_cells import TWO_CELLS
from tests.unit.virt.hosts import NAME, Host

PORT = PciAddress("0000:18:00.0")
GPU = PciAddress("0000:17:00.0")
NESTED = LayoutOptions(is_nested=True)

MACHINE = fake_topology(NAME, MachineSize(cells=2, gpus=2, nics=1, vfs_per_pf=4))
CARD = LayoutOptions(
    is_nested=True, gpu=GpuOptions(mdev_types=(MdevTypeOptions(MDEV_TYPE),)), nic=NicOptions()
)
OPTIONS = {
    "enable_numa_reporting_to_placement": replace(CARD, is_nested=False),
    "enabled_mdev_types": replace(CARD, gpu=GpuOptions()),
    "report_vfs": replace(CARD, nic=NicOptions(report_vfs="never")),
}


@pytest.fixture(scope="module")
def host() -> HostTopology:
    """Two cells with a T4 each, and a card each whose ports are ens1f0 and ens2f0."""
    return capture.replay(TWO_CELLS)


def specs(*entries: dict[str, Any], report: bool = True) -> LayoutOptions:
    parsed_specs = parse_device_specs(map(json.dumps, entries), report=report)
    return replace(NESTED, pci=PciOptions(report, parsed_specs))


def unmet(host: HostTopology, options: LayoutOptions) -> list[str]:
    layout = lay_out("host1", host, options)
    texts = [str(entry) for entry in layout.unmet_options]
    assert set(texts) <= set(layout.caveats)
    return texts


def test_options_that_name_what_is_there_are_met(host: HostTopology) -> None:
    options = replace(
        specs({"vendor_id": "10de", "product_id": "1eb8"}),
        cpu_sets=CpuSets(frozenset({0, 1})),
        nic=NicOptions(physnets={"ens1f0": "physnet1"}, numa_node_override={PORT: 1}),
    )
    assert unmet(host, options) == []
    types = (MdevTypeOptions("nvidia-222", (GPU,)),)
    assert unmet(host, replace(NESTED, gpu=GpuOptions(mdev_types=types))) == []


@pytest.mark.parametrize(
    ("entry", "there"),
    [
        ({"vendor_id": "10de", "product_id": "1eb9"}, "10de:1eb8"),
        ({"vendor_id": "15b3", "product_id": "1889"}, "nearest is 8086:1889"),
        ({"address": "0000:17:00.1"}, "nearest is 0000:17:00.0"),
        ({"address": "0000:17:00.0", "product_id": "2235"}, "at its address there is 10de:1eb8"),
    ],
)
def test_a_specification_without_a_device_names_the_nearest(
    host: HostTopology, entry: dict[str, Any], there: str
) -> None:
    (text,) = unmet(host, specs(entry))
    assert "[pci]device_spec" in text
    assert json.dumps(entry) in text
    assert there in text


def test_a_specification_by_an_interface_that_there_is_not(host: HostTopology) -> None:
    (text,) = unmet(host, specs({"devname": "ens1f1"}, report=False))
    assert "nearest is ens1f0" in text
    present = specs({"devname": "ens1f0"}, {"devname": "ens1f0v1"}, report=False)
    assert unmet(host, present) == []


def test_a_specification_whose_devices_an_earlier_one_has(host: HostTopology) -> None:
    (text,) = unmet(host, specs({"vendor_id": "10de"}, {"address": GPU, "traits": "BLUE"}))
    assert "BLUE" in text
    assert "an entry before it" in text
    assert GPU in text


@pytest.mark.parametrize(
    ("interface", "network", "advice"),
    [
        ("ens1f1", "physnet1", "nearest is ens1f0"),
        ("physnet1", "ens1f0", "write physnet1:ens1f0"),
    ],
)
def test_a_mapping_of_no_interface(
    host: HostTopology, interface: str, network: str, advice: str
) -> None:
    (text,) = unmet(host, replace(NESTED, nic=NicOptions(physnets={interface: network})))
    assert f"[nic]physnet_mappings {network}:{interface}" in text
    assert advice in text


def test_a_mapping_where_cards_are_not_reported(host: HostTopology) -> None:
    (text,) = unmet(host, LayoutOptions(nic=NicOptions(physnets={"ens1f0": "physnet1"})))
    assert "set report_vfs = always" in text


def test_a_type_or_a_device_that_makes_no_vgpus(host: HostTopology) -> None:
    types = (
        MdevTypeOptions("nvidia-221", (GPU,)),
        MdevTypeOptions("nvidia-222", (PciAddress("0000:16:00.0"),)),
    )
    layout = lay_out("host1", host, replace(NESTED, gpu=GpuOptions(mdev_types=types)))
    first, second = layout.unmet_options
    assert "nvidia-221, which no GPU here offers" in str(first)
    assert "nearest is nvidia-222" in str(first)
    assert first.value == "nvidia-222"
    assert "[mdev_nvidia-222]device_addresses names 0000:16:00.0" in str(second)
    assert "nearest is 0000:17:00.0" in str(second)


@pytest.mark.parametrize(("group", "options"), [("gpu", GpuOptions), ("nic", NicOptions)])
def test_an_override_of_nothing_or_onto_nothing(
    host: HostTopology, group: str, options: Callable[..., Any]
) -> None:
    override = {PciAddress("0000:19:00.0"): 0, GPU: 2}
    group_options = {group: options(numa_node_override=override)}
    first, second = unmet(host, replace(NESTED, **group_options))
    assert f"[{group}]numa_node_override names 0000:19:00.0" in first
    assert f"puts {GPU} on NUMA cell 2, which this machine does not have; it has 0, 1" in second


def test_cells_of_networks_that_there_are_not(host: HostTopology) -> None:
    cells = {"neutron_physnet_a": frozenset({1}), "neutron_tunnel": frozenset({0, 2, 5})}
    (text,) = unmet(host, replace(NESTED, network_cells=cells))
    assert "[neutron_tunnel]numa_nodes names NUMA cells 2,5" in text
    assert "it has 0-1" in text


def test_shared_cpus_that_there_are_not(host: HostTopology) -> None:
    options = replace(NESTED, cpu_sets=CpuSets(frozenset({0, 1, 99})))
    layout = lay_out("host1", host, options)
    (entry,) = layout.unmet_options
    assert "CPUs 99" in str(entry)
    assert entry.value == "0-1"


def test_more_guests_of_tdx_than_the_kernel_has_keys_for(host: HostTopology) -> None:
    encryption = MemoryEncryption(intel_tdx=True, capacity=(("tdx", 30),))
    facts = replace(host, memory_encryption=encryption)
    (text,) = unmet(facts, replace(NESTED, tdx_guests=31))
    assert "[libvirt]num_intel_tdx_guests is 31, and the kernel has keys for 30" in text
    assert unmet(facts, replace(NESTED, tdx_guests=30)) == []
    assert unmet(host, replace(NESTED, tdx_guests=31)) == unmet(facts, NESTED) == []


def used_by_host(host: HostTopology, *, vf: bool) -> HostTopology:
    def used(port: NicPort) -> NicPort:
        if port.address != PORT:
            return port
        if not vf:
            return replace(port, in_use_by_host=True)
        vfs = (replace(port.vfs[0], in_use_by_host=True), *port.vfs[1:])
        return replace(port, vfs=vfs)

    return replace(host, nics=tuple(map(used, host.nics)))


def test_the_port_through_which_the_host_talks_is_offered_with_a_warning(
    host: HostTopology,
) -> None:
    offer = {"vendor_id": "8086", "product_id": "1592"}
    (text,) = unmet(used_by_host(host, vf=False), specs(offer))
    assert f"gives guests {PORT}, through which this host itself talks (ens1f0" in text
    in_a_network = specs({"address": PORT, "physical_network": "physnet1"})
    assert unmet(used_by_host(host, vf=False), in_a_network) == []


def test_a_function_with_an_address_of_the_host_is_offered_with_a_warning(
    host: HostTopology,
) -> None:
    (text,) = unmet(used_by_host(host, vf=True), specs({"product_id": "1889"}))
    assert f"gives guests {host.nics[0].vfs[0].address}, through which" in text


def test_functions_of_infiniband_that_no_option_mentions(host: HostTopology) -> None:
    port = replace(host.nics[0], is_infiniband=True)
    facts = replace(host, nics=host.nics[1:], infiniband_ports=(port,))
    (text,) = lay_out("host1", facts, NESTED).caveats
    assert "8 functions of the InfiniBand port 0000:18:00.0 (ens1f0)" in text
    assert lay_out("host1", facts, specs({"product_id": "1889"})).caveats == ()
    (text,) = lay_out("host1", facts, specs({"address": port.vfs[0].address})).caveats
    assert "7 functions of the InfiniBand port 0000:18:00.0 (ens1f0)" in text
    of_a_network = specs({"product_id": "1592", "physical_network": "ib0"})
    assert lay_out("host1", facts, of_a_network).caveats == ()


def test_functions_of_a_network_that_belong_to_no_port(host: HostTopology) -> None:
    facts = replace(host, nics=host.nics[1:])
    entry = {"address": PORT, "physical_network": "physnet1"}
    first, second = unmet(facts, specs(entry, {"address": GPU, "physical_network": "physnet2"}))
    assert f"gives {PORT}, " in first
    assert GPU not in first
    assert "to the network physnet1" in first
    assert f"gives {GPU} to the network physnet2" in second
    assert unmet(facts, specs({**entry, "remote_managed": "true"})) == []
    assert unmet(facts, replace(specs(entry), is_nested=False)) == []


def test_options_that_contradict_the_machine_are_among_the_caveats(host: HostTopology) -> None:
    layout = lay_out("host1", host, specs({"vendor_id": "8086", "address": "0000:18:*.*"}))
    assert layout.errors[0] in layout.caveats


def said(machine, options) -> list[str]:
    return list(unreported(machine, lay_out(NAME, machine, options), options))


def test_nothing_is_said_of_a_host_that_reports_all_it_has():
    assert said(MACHINE, CARD) == []
    plain = fake_topology(NAME, MachineSize(cells=1, gpus=0, nics=1, vfs_per_pf=0))
    assert said(plain, LayoutOptions()) == []


@pytest.mark.parametrize("option", OPTIONS)
def test_the_option_that_would_report_it_is_named(option):
    sentences = said(MACHINE, OPTIONS[option])
    assert any(option in sentence for sentence in sentences)
    assert all(sentence.endswith(".") for sentence in sentences)


def test_it_is_logged_once(caplog):
    host = Host(MACHINE, LayoutOptions())
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            host.update()
    assert caplog.text.count("enable_numa_reporting_to_placement") == 1
