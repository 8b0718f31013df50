"""Each captured machine as a real libvirtd sees it, beside what sysfs shows of it.

libvirt reads the same files, by code that is not ours: what the two report and what is laid out of
them agree, or the difference is in the tables below with its reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

from compute_agent.discovery import capture
from compute_agent.discovery.facts import (
    GpuVf,
    HostTopology,
    NicPort,
    NicVf,
    PciAddress,
    PciDevice,
    PhysicalGpu,
)
from compute_agent.discovery.libvirt import source
from compute_agent.discovery.libvirt.connection import LibvirtConnection
from compute_agent.discovery.libvirt.cpu_features import GuestCpuOptions
from compute_agent.discovery.libvirt.described import describe
from compute_agent.discovery.libvirt.facts import HypervisorReading
from compute_agent.discovery.libvirt.guest_abilities import AbilityReader
from compute_agent.discovery.libvirt.join import join
from compute_agent.virt.layout import LayoutOptions, WantedProvider, lay_out
from compute_agent.virt.layout.options import GpuOptions, MdevTypeOptions
from tests.data import machines
from tests.fixtures.libvirtd import running_libvirtd

WITHOUT_CELLS: Final = frozenset({"no-numa", "riscv"})
"""libvirt reports no topology there, and sysfs has one cell made of all."""

UNNAMED_CELLS: Final = {
    "nowhere-gpus": {PciAddress("0000:41:00.0"): 1, PciAddress("0000:81:00.0"): None}
}
"""Functions with numa_node -1, of which libvirt reports no cell: the near CPUs lie on this one."""

WARNINGS: Final = {
    "limited-container": (
        "libvirt reports 134217728 KiB of memory of the host, /proc/meminfo 4194304 KiB; the "
        "smaller is used",
    ),
    "riscv": (
        "getInfo failed: internal error: Invalid unsigned integer value '-1' in file "
        "'/sys/devices/system/cpu/cpu0/topology/core_id'; the memory of the host is that of its "
        "cells, or of sysfs",
    ),
    "fake-cells": tuple(
        f"getCapabilities: cell {cell} claims CPUs 0-3 of a cell before it; they stay there"
        for cell in (1, 2, 3)
    ),
}
"""What the join tells; nothing of the other machines."""

ENABLED: Final = {
    "two-cells": "nvidia-222",
    "two-sockets": "nvidia-222",
    "sriov-vgpus": "nvidia-563",
    "vendor-vgpus": "nvidia-563",
}
"""The type of mediated device that is laid out."""


@dataclass(frozen=True)
class Machine:
    """A captured machine by both sources."""

    name: str
    reading: HypervisorReading
    sysfs: HostTopology


@pytest.fixture(scope="module", params=machines.NAMES)
def machine(
    request: pytest.FixtureRequest,
    libvirt_run_directory: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Machine:
    name = str(request.param)
    directory = machines.make(name, tmp_path_factory.mktemp(name))
    with running_libvirtd(libvirt_run_directory, directory) as daemon:
        connection = LibvirtConnection(daemon.uri, read_only=True)
        reading = source.read(connection, AbilityReader(connection, GuestCpuOptions("qemu")))
        connection.close()
    return Machine(name, reading, capture.replay(directory))


def test_cells_and_cpus_are_the_same(machine: Machine) -> None:
    libvirt, sysfs = describe(machine.reading), machine.sysfs
    assert libvirt.online_cpus == sysfs.online_cpus
    if machine.name in WITHOUT_CELLS:
        assert libvirt.cells == ()
        return
    # libvirt has the CPUs that are offline of some kernels only, and no memory of GPUs as such
    ours, theirs = (
        [replace(cell, gpu_memory_of=None, offline_cpus=()) for cell in host.cells]
        for host in (libvirt, sysfs)
    )
    assert ours == theirs
    # of packages and caches only sysfs tells
    assert libvirt.cpus == tuple(replace(cpu, package=None, l3=None) for cpu in sysfs.cpus)


def test_pci_functions_are_the_same(machine: Machine) -> None:
    unnamed = UNNAMED_CELLS.get(machine.name, {})

    def as_libvirt(device: PciDevice) -> PciDevice:
        if device.address not in unnamed:
            return device
        assert device.numa_node == unnamed[device.address]
        return replace(device, numa_node=None)

    assert describe(machine.reading).pci_devices == tuple(
        map(as_libvirt, machine.sysfs.pci_devices)
    )


def test_ports_are_the_same_but_for_what_only_sysfs_shows(machine: Machine) -> None:
    def of_libvirt(port: NicPort) -> NicPort:
        # offloads are those of an interface of this name where the test runs
        return replace(port, features=())

    def of_sysfs(port: NicPort) -> NicPort:
        return replace(
            port,
            features=(),
            mac_permanent=False,
            in_use_by_host=False,
            vfs=tuple(map(unused, port.vfs)),
        )

    def unused(vf: NicVf) -> NicVf:
        return replace(vf, in_use_by_host=False)

    assert [of_libvirt(port) for port in describe(machine.reading).nics] == [
        of_sysfs(port) for port in machine.sysfs.nics
    ]


def test_gpus_and_what_they_make_are_the_same(machine: Machine) -> None:
    unnamed = UNNAMED_CELLS.get(machine.name, {})

    def of_sysfs(gpu: PhysicalGpu) -> PhysicalGpu:
        return PhysicalGpu(
            gpu.address,
            gpu.vendor_id,
            gpu.product_id,
            None if gpu.address in unnamed else gpu.numa_node,
            tuple(map(without_vendor, gpu.vfs)),
            gpu.mdev_types,
            gpu.mdevs,
        )

    def without_vendor(vf: GpuVf) -> GpuVf:
        # vGPUs of the vendor's own VFIO driver are none of libvirt's
        return replace(vf, mdev_types=(), mdevs=()) if machine.name == "vendor-vgpus" else vf

    assert describe(machine.reading).gpus == tuple(map(of_sysfs, machine.sysfs.gpus))


def test_joining_loses_nothing_and_tells_what_differs(machine: Machine) -> None:
    host = join(machine.reading, machine.sysfs)
    assert host.gpus == machine.sysfs.gpus
    assert host.pci_devices == machine.sysfs.pci_devices
    assert host.cells == machine.sysfs.cells
    assert host.memory_kib // 1024 == machine.sysfs.memory_kib // 1024  # libvirt counts MiB
    told = set(host.warnings) - set(machine.sysfs.warnings)
    assert tuple(sorted(told)) == WARNINGS.get(machine.name, ())


@pytest.mark.parametrize("nested", [False, True])
def test_what_is_laid_out_of_both_is_what_is_laid_out_of_sysfs(
    machine: Machine, nested: bool
) -> None:
    types = (MdevTypeOptions(ENABLED[machine.name]),) if machine.name in ENABLED else ()
    options = LayoutOptions(is_nested=nested, gpu=GpuOptions(mdev_types=types))

    def laid_out(host: HostTopology) -> list[WantedProvider]:
        layout = lay_out("host1", host, options)
        assert not layout.errors
        return [
            replace(
                provider,
                traits=frozenset(filter(of_the_host, provider.traits)),
                absent_traits=frozenset(filter(of_the_host, provider.absent_traits)),
            )
            for provider in layout.providers
        ]

    def of_the_host(trait: str) -> bool:
        # what guests get of the CPU is the hypervisor's, and offloads are those of this machine
        return not trait.startswith(("HW_CPU_", "HW_NIC_"))

    assert laid_out(join(machine.reading, machine.sysfs)) == laid_out(machine.sysfs)
