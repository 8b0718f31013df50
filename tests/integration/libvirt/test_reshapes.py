"""A start that moves allocations to where the guests of a real libvirtd really have things."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from compute_agent.discovery.pci_address import pci_address
from tests.data.machines import make, two_sockets
from tests.fixtures.allocations import new_uuid
from tests.fixtures.libvirt_guests import (
    function_of_host,
    interface_of_host,
    mediated_device,
    on_cell,
    pinned,
)
from tests.integration.libvirt.hosts import Host, hypervisor_host

GPU_0, GPU_1 = "_pci_0000_18_00_0", "_pci_0000_82_00_0"
NESTED = "[compute]\nenable_numa_reporting_to_placement = True\n"

MakeHost = Callable[[Path | None], Host]


@pytest.fixture
def host_on(libvirt_run_directory: Path, tmp_path: Path) -> Iterator[MakeHost]:
    """Runs a host on a machine; None: on this one."""
    with ExitStack() as stack:
        yield lambda machine: stack.enter_context(
            hypervisor_host(libvirt_run_directory, tmp_path, machine)
        )


def test_vgpus_on_the_root_go_to_the_gpus_that_mediated_devices_are_on(
    host_on: MakeHost, tmp_path: Path
) -> None:
    machine = two_sockets()
    first, second, third = new_uuid(), new_uuid(), new_uuid()
    for group, (uuid, address) in enumerate(
        ((first, "0000:18:00.0"), (second, "0000:18:00.0"), (third, "0000:82:00.0"))
    ):
        machine.mdev(address, uuid, "nvidia-222", iommu_group=900 + group)
    host = host_on(machine.write(tmp_path / "machine"))
    small = host.define(devices=mediated_device(first))
    large = host.define(devices=mediated_device(second) + mediated_device(third))
    host.register({"VGPU": {"total": 32}, "VCPU": {"total": 16}})
    host.claim(small, {"": {"VGPU": 1, "VCPU": 2}})
    host.claim(large, {"": {"VGPU": 2}})

    agent = host.passes("[devices]\nenabled_mdev_types = nvidia-222\n")

    assert host.held(small) == {"": {"VCPU": 2}, GPU_0: {"VGPU": 1}}
    assert host.held(large) == {GPU_0: {"VGPU": 1}, GPU_1: {"VGPU": 1}}
    assert "VGPU" not in host.tree().data(host.name).inventory
    assert agent.run().completed
    assert host.passes("[devices]\nenabled_mdev_types = nvidia-222\n").run().completed


def test_vcpus_of_pinned_guests_become_pcpus_and_those_of_others_stay(host_on: MakeHost) -> None:
    host = host_on(None)
    own = host.run(pinned(1), vcpu="<vcpu>1</vcpu>")
    shut_off = host.define(pinned(1), vcpu="<vcpu>1</vcpu>")
    floating = host.run(vcpu="<vcpu cpuset='0'>2</vcpu>")
    host.passes()
    host.claim(own, {"": {"VCPU": 1, "MEMORY_MB": 32}})
    host.claim(floating, {"": {"VCPU": 2, "MEMORY_MB": 32}})

    sets = "[compute]\ncpu_shared_set = 0\ncpu_dedicated_set = 1\n"
    agent = host.passes(sets)

    assert host.held(own) == {"": {"PCPU": 1, "MEMORY_MB": 32}}
    assert host.held(floating) == {"": {"VCPU": 2, "MEMORY_MB": 32}}
    assert host.held(shut_off) == {}
    inventory = host.tree().data(host.name).inventory
    assert (inventory["VCPU"]["total"], inventory["PCPU"]["total"]) == (1, 1)
    assert agent.run().completed


def test_guests_go_to_the_cells_that_they_are_bound_to_and_back(
    host_on: MakeHost, tmp_path: Path
) -> None:
    host = host_on(make("two-cells", tmp_path))
    on_1 = host.define(on_cell(1))
    floating = host.define()
    across = host.define(
        "<numatune><memory mode='strict' nodeset='0-1'/>"
        "<memnode cellid='0' mode='strict' nodeset='0'/>"
        "<memnode cellid='1' mode='strict' nodeset='1'/></numatune>"
        "<cpu><numa><cell id='0' cpus='0' memory='8' unit='MiB'/>"
        "<cell id='1' cpus='1' memory='24' unit='MiB'/></numa></cpu>"
    )
    in_pages = host.define(
        on_cell(1),
        "<memoryBacking><hugepages><page size='2' unit='M' nodeset='0'/></hugepages>"
        "</memoryBacking>",
    )
    host.passes()
    flat = {"VCPU": 2, "MEMORY_MB": 32}
    for uuid in (on_1, floating, across, in_pages):
        host.claim(uuid, {"": flat})

    agent = host.passes(NESTED)

    assert host.held(on_1) == {"_NUMA1": flat}
    assert host.held(across) == {
        "_NUMA0": {"VCPU": 1, "MEMORY_MB": 8},
        "_NUMA1": {"VCPU": 1, "MEMORY_MB": 24},
    }
    assert host.held(in_pages) == {"_NUMA1": {"VCPU": 2}, "_NUMA1_PAGES2048": {"MEMORY_MB": 32}}
    (cell,) = host.held(floating)
    assert cell in ("_NUMA0", "_NUMA1")
    assert agent.run().completed

    host.passes()
    for uuid in (on_1, floating, across, in_pages):
        assert host.held(uuid) == {"": flat}


def test_devices_that_guests_hold_are_allocated_when_placement_begins_to_count_them(
    host_on: MakeHost, tmp_path: Path
) -> None:
    host = host_on(make("two-sockets", tmp_path))
    whole = host.define(devices=function_of_host(pci_address("0000:83:00.0")))
    of_a_port = host.define(
        devices=interface_of_host(pci_address("0000:17:01.1"))
        + interface_of_host(pci_address("0000:17:01.2"))
    )
    bare = host.define()
    host.passes()
    for uuid in (whole, of_a_port, bare):
        host.claim(uuid, {"": {"VCPU": 1}})

    reported = (
        "[pci]\nreport_in_placement = True\n"
        'device_spec = {"address": "0000:83:00.0"}\n'
        'device_spec = {"address": "0000:17:01.*"}\n'
    )
    agent = host.passes(reported)

    held = {uuid: host.held(uuid) for uuid in (whole, of_a_port, bare)}
    assert {name for name in held[whole] if name} == {"_0000:83:00.0"}
    assert sum(held[whole]["_0000:83:00.0"].values()) == 1
    assert {name for name in held[of_a_port] if name} == {"_0000:17:00.0"}
    assert sum(held[of_a_port]["_0000:17:00.0"].values()) == 2
    assert held[bare] == {"": {"VCPU": 1}}
    assert agent.run().completed


def test_vgpus_and_passed_through_devices_follow_a_class_that_became_a_standard_one(
    host_on: MakeHost, tmp_path: Path
) -> None:
    machine, device = two_sockets(), new_uuid()
    machine.mdev("0000:18:00.0", device, "nvidia-222", iommu_group=900)
    host = host_on(machine.write(tmp_path / "machine"))
    guest = host.define(
        devices=mediated_device(device) + function_of_host(pci_address("0000:83:00.0"))
    )
    reported = (
        "[devices]\nenabled_mdev_types = nvidia-222\n[mdev_nvidia-222]\n"
        "device_addresses = 0000:18:00.0,0000:19:00.0\n{mdev_class}"
        '[pci]\nreport_in_placement = True\ndevice_spec = {{"address": "0000:83:00.0"{tag}}}\n'
    )
    custom = reported.format(
        mdev_class="mdev_class = CUSTOM_VGPU\n", tag=', "resource_class": "CUSTOM_PGPU"'
    )
    host.passes(custom)
    host.claim(guest, {GPU_0: {"CUSTOM_VGPU": 1}, "_0000:83:00.0": {"CUSTOM_PGPU": 1}})
    standard = reported.format(mdev_class="", tag=', "resource_class": "PGPU"')
    agent = host.passes(standard)
    assert host.held(guest) == {GPU_0: {"VGPU": 1}, "_0000:83:00.0": {"PGPU": 1}}
    assert host.tree().data(f"{host.name}{GPU_0}").inventory.keys() == {"VGPU"}
    assert agent.run().completed

    host.passes(custom)
    assert host.held(guest) == {GPU_0: {"CUSTOM_VGPU": 1}, "_0000:83:00.0": {"CUSTOM_PGPU": 1}}


def test_a_custom_class_of_the_root_becomes_the_standard_one_and_goes_to_the_cell_of_its_guest(
    host_on: MakeHost, tmp_path: Path
) -> None:
    host = host_on(make("two-cells", tmp_path))
    own = host.define(pinned(12, 13), on_cell(1))
    host.register({"CUSTOM_PCPU": {"total": 4}, "MEMORY_MB": {"total": 65536}})
    host.claim(own, {"": {"CUSTOM_PCPU": 2, "MEMORY_MB": 32}})
    sets = "cpu_shared_set = 0-7\ncpu_dedicated_set = 12-15\n"
    host.passes(f"[compute]\n{sets}")
    assert host.held(own) == {"": {"PCPU": 2, "MEMORY_MB": 32}}
    assert "CUSTOM_PCPU" not in host.tree().data(host.name).inventory
    host.passes(f"{NESTED}{sets}")
    assert host.held(own) == {"_NUMA1": {"PCPU": 2, "MEMORY_MB": 32}}


def test_cpus_and_memory_of_a_guest_on_different_cells_go_each_to_its_own(
    host_on: MakeHost, tmp_path: Path
) -> None:
    host = host_on(make("two-cells", tmp_path))
    torn = host.define(pinned(12, 13), on_cell(0))
    sets = "cpu_shared_set = 0-7\ncpu_dedicated_set = 8-15\n"
    host.passes(f"[compute]\n{sets}")
    host.claim(torn, {"": {"PCPU": 2, "MEMORY_MB": 32}})
    host.passes(f"{NESTED}{sets}")
    assert host.held(torn) == {"_NUMA0": {"MEMORY_MB": 32}, "_NUMA1": {"PCPU": 2}}
