"""A catalogue of machines: `make("no-numa", directory)` writes one, as a capture of it would be.

Each teaches one thing (README.md); all of them are read alike by discovery and by a libvirtd that
sees them as its own (tests/fixtures/libvirtd.py).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.data import archive
from tests.data.card_machines import CARD_MACHINES
from tests.data.cell_machines import CELL_MACHINES
from tests.data.kernel_formats import cpu_map
from tests.data.machine_builder import MachineBuilder
from tests.data.machine_parts import (
    A40_TYPES,
    GIB,
    add_card,
    add_cells,
    add_gpu_with_vfs,
    add_mdev_types,
    add_t4,
    machine_named,
    mig_profile,
    nvml_t4,
    vgpu_types,
)
from tests.data.make_two_cells import TWO_CELLS


def make(name: str, directory: Path) -> Path:
    """Write the machine to `directory`/`name` and return that; sys/, proc/ and capture.json."""
    target = directory / name
    if name in MACHINES:
        return MACHINES[name]().write(target)
    if name == "two-cells":
        shutil.copytree(TWO_CELLS, target, symlinks=True)
        return target
    return archive.unpack(name, directory)


def two_sockets() -> MachineBuilder:
    """Two sockets; on each a card with two ports of 8 VFs, and two GPUs that make vGPUs."""
    machine = machine_named("two-sockets")
    add_cells(machine, sockets=2, cells_of_socket=1, cores=4, cell_kib=64 * GIB)
    for cell, bus in ((0, 0x17), (1, 0x81)):
        add_card(machine, cell, bus, ports=2, vfs=8)
        for number in range(2):
            add_t4(machine, f"0000:{bus + 1 + number:02x}:00.0", cell, 2 * cell + number)
    return machine


def nps4() -> MachineBuilder:
    """Two sockets of four cells each; a card on a cell of either socket."""
    machine = machine_named("nps4")
    add_cells(machine, sockets=2, cells_of_socket=4, cores=2, cell_kib=16 * GIB)
    for cell, bus in ((1, 0x21), (6, 0xC1)):
        machine.nic(f"0000:{bus:02x}:00.0", f"enp{bus}s0", vfs=2, numa_node=cell, iommu_group=bus)
    return machine


def memory_cell() -> MachineBuilder:
    """Two cells with CPUs and, behind CXL, one with memory only, larger than both."""
    machine = machine_named("memory-cell")
    add_cells(machine, sockets=2, cells_of_socket=1, cores=2, cell_kib=16 * GIB)
    machine.memory(96 * GIB)
    machine.nodes("0-2")
    machine.node(0, cpus="0-1,4-5", memory_kib=16 * GIB, distance="10 21 24")
    machine.node(1, cpus="2-3,6-7", memory_kib=16 * GIB, distance="21 10 14")
    machine.node(2, cpus="", memory_kib=64 * GIB, distance="24 14 10")
    machine.huge_pages(2, 2048, total=512, free=512)
    machine.huge_pages(2, 1048576, total=0, free=0)
    return machine


def number_gaps() -> MachineBuilder:
    """Cells 0 and 8 as on POWER, and CPUs that are offline or not there between others."""
    machine = machine_named("number-gaps")
    machine.memory(64 * GIB)
    machine.cpuinfo(count=8)
    machine.cpus("0-3,8-9,16-17", "0-4,8-9,16-17")
    for cpus, cell in (("0-3", 0), ("8-9,16-17", 8)):
        machine.node(
            cell,
            cpus=cpus,
            memory_kib=32 * GIB,
            distance="10 40" if cell == 0 else "40 10",
        )
        machine.huge_pages(cell, 2048, total=64 * (cell + 1), free=64 * (cell + 1))
    machine.nodes("0,8")
    for siblings, socket in (("0-1", 0), ("2-3", 0), ("8-9", 8), ("16-17", 8)):
        first = int(siblings.split("-")[0])
        for cpu in (first, first + 1):
            machine.cpu(cpu, socket=socket, core=first, siblings=siblings)
    machine.nic("0030:01:00.0", "enP48p1s0f0", vfs=2, numa_node=8, iommu_group=3)
    return machine


def limited_container() -> MachineBuilder:
    """A container of 2 CPUs and 4 GiB, which is shown the nodes of the whole host."""
    machine = machine_named("limited-container")
    add_cells(machine, sockets=2, cells_of_socket=1, cores=4, cell_kib=64 * GIB)
    machine.memory(4 * GIB)
    machine.cpuinfo(count=2)
    machine.sys("devices/system/cpu/online", "2-3")
    return machine


def no_numa() -> MachineBuilder:
    """A kernel without NUMA: no node directory, devices without a `numa_node`."""
    machine = machine_named("no-numa")
    machine.memory(16 * GIB)
    machine.cpuinfo(count=4)
    machine.cpus("0-3")
    for cpu in range(4):
        machine.cpu(cpu, socket=0, core=cpu // 2, siblings=f"{cpu // 2 * 2}-{cpu // 2 * 2 + 1}")
    machine.huge_pages(None, 2048, total=128, free=128)
    port = machine.root_port("0000:00:1c.0", numa_node=None, iommu_group=3)
    for vf in machine.nic("0000:01:00.0", "enp1s0", vfs=2, below=port, iommu_group=4):
        machine.remove(f"sys/{machine.device(vf)}/numa_node")
    machine.remove(f"sys/{machine.device('0000:01:00.0')}/numa_node")
    return machine


def nowhere_gpus() -> MachineBuilder:
    """Firmware that names no cell: near CPUs show one GPU's, NVML or an option the other's."""
    machine = machine_named("nowhere-gpus")
    add_cells(machine, sockets=2, cells_of_socket=1, cores=2, cell_kib=32 * GIB)
    for number, (bus, near) in enumerate((("41", "2-3,6-7"), ("81", "0-7"))):
        address = f"0000:{bus}:00.0"
        machine.gpu(address, numa_node=-1, iommu_group=10 + number)
        machine.sys(f"{machine.device(address)}/local_cpulist", near)
        machine.sys(f"{machine.device(address)}/local_cpus", cpu_map(near))
        add_mdev_types(machine, address)
        machine.nvml(address, **nvml_t4(number), near_cells=[1])
    return machine


def no_vfs() -> MachineBuilder:
    """A port that could make VFs and has none, one without SR-IOV, one whose firmware allows none.

    The first is what a host looks like between its boot and the script that makes the VFs.
    """
    machine = machine_named("no-vfs")
    add_cells(machine, sockets=1, cells_of_socket=1, cores=2, cell_kib=16 * GIB)
    machine.nic("0000:18:00.0", "ens1f0", vfs=0, total_vfs=64, iommu_group=1)
    machine.nic("0000:19:00.0", "ens2f0", vfs=0, total_vfs=0, iommu_group=2)
    machine.pci(
        "0000:01:00.0",
        vendor="14e4",
        product="165f",
        class_code="020000",
        driver="tg3",
        iommu_group=3,
    )
    machine.netdev("0000:01:00.0", "eno1", mac="b4:96:91:00:01:00", speed="1000")
    return machine


def two_domains() -> MachineBuilder:
    """The same bus and slot in two PCI domains, and a drive behind VMD, whose domain is 5 digits.

    An address without its domain names two functions here.
    """
    machine = machine_named("two-domains")
    add_cells(machine, sockets=2, cells_of_socket=1, cores=2, cell_kib=16 * GIB)
    for cell in range(2):
        machine.nic(
            f"000{cell}:81:00.0",
            f"enP{cell}p129s0",
            vfs=4,
            numa_node=cell,
            mac=f"b4:96:91:d0:{cell:02x}:00",
            iommu_group=10 + 10 * cell,
        )
    machine.pci(
        "10000:e1:00.0",
        vendor="8086",
        product="0a54",
        class_code="010802",
        numa_node=1,
        driver="nvme",
        iommu_group=40,
    )
    return machine


def _machine_with_a40(name: str) -> tuple[MachineBuilder, list[str]]:
    """Two cells, at the second a GPU with VFs, whose addresses are returned too."""
    machine = machine_named(name)
    add_cells(machine, sockets=2, cells_of_socket=1, cores=2, cell_kib=64 * GIB)
    pf = "0000:81:00.0"
    machine.nvml(
        pf,
        uuid="GPU-a40a40a4-0f6e-4c3b-8a11-9e4f7b2d6a02",
        serial="1320921000001",
        model="NVIDIA A40",
        compute_capability=[8, 6],
        near_cells=[1],
        vgpu_types=vgpu_types(A40_TYPES),
    )
    return machine, add_gpu_with_vfs(machine, pf, product="2235", vfs=8)


def sriov_vgpus() -> MachineBuilder:
    """A GPU whose VFs make the mdevs: each of the 8 offers both types, of which 32 or 2 fit.

    One VF has a vGPU already, so that it offers no other, and the large type fits once more.
    """
    machine, vfs = _machine_with_a40("sriov-vgpus")
    for number, vf in enumerate(vfs):
        for type_id, name, _, _ in A40_TYPES:
            machine.mdev_type(vf, type_id, name, 0 if number == 0 else 1)
    machine.mdev("0000:81:00.4", "0d5a2e31-6f0c-4a53-9a4b-1a1c2d3e4f50", "nvidia-563", 60)
    return machine


def vendor_vgpus() -> MachineBuilder:
    """The same GPU under the vendor's own VFIO driver: no mdev; a VF itself is the vGPU."""
    machine, vfs = _machine_with_a40("vendor-vgpus")
    menu = "ID    : vGPU Name\n557   : NVIDIA A40-1Q\n563   : NVIDIA A40-24Q"
    for number, vf in enumerate(vfs):
        here = f"{machine.device(vf)}/nvidia"
        machine.sys(f"{here}/creatable_vgpu_types", "" if number == 0 else menu)
        machine.sys(f"{here}/current_vgpu_type", 563 if number == 0 else 0)
        machine.sys(f"{here}/vgpu_params", "")
    return machine


def mig_gpus() -> MachineBuilder:
    """Two A100 in MIG mode, one cut into three slices of two shapes, one not cut yet."""
    machine = machine_named("mig-gpus")
    add_cells(machine, sockets=2, cells_of_socket=1, cores=2, cell_kib=64 * GIB)
    profiles = [
        mig_profile("1g.10gb", 19, 1, 9728, 7),
        mig_profile("2g.20gb", 14, 2, 19968, 3),
        mig_profile("3g.40gb", 9, 3, 40192, 2),
        mig_profile("7g.80gb", 0, 7, 80384, 1),
    ]
    slices = [("3g.40gb", 9, 2, 0, 4), ("1g.10gb", 19, 7, 4, 1), ("1g.10gb", 19, 8, 5, 1)]
    room = {"1g.10gb": (1, 7), "2g.20gb": (0, 3), "3g.40gb": (0, 2), "7g.80gb": (0, 1)}
    for cell, bus in enumerate(("41", "81")):
        address = f"0000:{bus}:00.0"
        machine.gpu(address, product="20b5", numa_node=cell, iommu_group=20 + cell)
        machine.nvml(
            address,
            uuid=f"GPU-a100a100-0000-4000-8000-00000000000{cell}",
            serial=f"132102100000{cell}",
            model="NVIDIA A100 80GB PCIe",
            compute_capability=[8, 0],
            near_cells=[cell],
            mig_enabled=True,
            mig_profiles=profiles,
            mig_devices=[
                {
                    "uuid": f"MIG-a100a100-0000-4000-8000-0000000001{instance:02d}",
                    "profile": profile,
                    "gpu_instance": instance,
                    "compute_instance": 0,
                    "start": start,
                    "size": size,
                }
                for profile, _number, instance, start, size in slices
                if cell == 0
            ],
            gpu_instances=[
                {"start": start, "size": size, "profile_id": number, "id": instance}
                for _profile, number, instance, start, size in slices
                if cell == 0
            ],
            mig_remaining=[[profile, left[cell]] for profile, left in room.items()],
        )
    return machine


def large() -> MachineBuilder:
    """32 cells of 16 threads, a GPU that makes vGPUs on each, 8 ports with 64 VFs: to measure."""
    machine = machine_named("large")
    add_cells(machine, sockets=4, cells_of_socket=8, cores=8, cell_kib=64 * GIB)
    for cell in range(32):
        add_t4(machine, f"0000:{cell + 1:02x}:00.0", cell, cell)
    for number in range(8):
        bus, cell = 0x80 + 8 * number, 4 * number
        machine.nic(
            f"0000:{bus + 1:02x}:00.0",
            f"ens{number}f0",
            vfs=64,
            numa_node=cell,
            mac=f"b4:96:91:{bus:02x}:00:00",
            below=machine.root_port(f"0000:{bus:02x}:00.0", numa_node=cell, iommu_group=bus),
            iommu_group=1000 + 100 * number,
        )
    return machine


def gpu_server() -> MachineBuilder:
    """Two sockets with a card of 8 VFs each, and four GPUs that make vGPUs, all on the second."""
    machine = machine_named("gpu-server")
    add_cells(machine, sockets=2, cells_of_socket=1, cores=8, cell_kib=128 * GIB)
    for cell, bus in ((0, 0x17), (1, 0x81)):
        add_card(machine, cell, bus, ports=1, vfs=8)
    for number in range(4):
        add_t4(machine, f"0000:{0x82 + number:02x}:00.0", 1, number)
    return machine


def sriov_server() -> MachineBuilder:
    """Two sockets; on each a card with two ports of 16 VFs."""
    machine = machine_named("sriov-server")
    add_cells(machine, sockets=2, cells_of_socket=1, cores=8, cell_kib=64 * GIB)
    for cell, bus in ((0, 0x17), (1, 0x81)):
        add_card(machine, cell, bus, ports=2, vfs=16)
    return machine


SHIPPED: Final[dict[str, Callable[[], MachineBuilder]]] = {
    "gpu-server": gpu_server,
    "sriov-server": sriov_server,
    "nps4-server": nps4,
}
"""Machines that the package has, for `compute-agent dev --machine`; pack_machines.py packs them."""

MACHINES: Final[dict[str, Callable[[], MachineBuilder]]] = {
    "two-sockets": two_sockets,
    "nps4": nps4,
    "memory-cell": memory_cell,
    "number-gaps": number_gaps,
    "limited-container": limited_container,
    "no-numa": no_numa,
    "nowhere-gpus": nowhere_gpus,
    "no-vfs": no_vfs,
    "two-domains": two_domains,
    "sriov-vgpus": sriov_vgpus,
    "vendor-vgpus": vendor_vgpus,
    "mig-gpus": mig_gpus,
    **CELL_MACHINES,
    **CARD_MACHINES,
}
NAMES: Final = ("two-cells", "emulated-numa", *MACHINES)
"""Every machine that `make` knows."""
