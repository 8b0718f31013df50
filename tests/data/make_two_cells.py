"""Maker of tests/data/two-cells, a server with two cells: `python -m tests.data.make_two_cells`.

Two sockets of four cores with two threads; 64 GiB and huge pages on each; on each cell a card with
one port of 8 VFs and a GPU that makes vGPUs through the mdev framework; a management controller's
screen, which is no GPU.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from tests.data.machine_builder import MachineBuilder

TWO_CELLS = Path(__file__).with_name("two-cells")

CELL_CPUS = ("0-3,8-11", "4-7,12-15")
CELL_KIB = 65_847_296
VGPU_TYPES = (
    ("nvidia-222", "GRID T4-1B", 16),
    ("nvidia-230", "GRID T4-1Q", 16),
    ("nvidia-231", "GRID T4-2Q", 8),
    ("nvidia-232", "GRID T4-4Q", 4),
)
GPUS = (
    (
        "0000:17:00.0",
        "0000:16:02.0",
        0,
        "GPU-7f8a3c1e-52b4-4a0e-9d55-3d0a6c9b1e01",
        "1562020001234",
    ),
    (
        "0000:84:00.0",
        "0000:80:03.0",
        1,
        "GPU-c2d91b70-0f6e-4c3b-8a11-9e4f7b2d6a02",
        "1562020005678",
    ),
)
NICS = (
    ("0000:18:00.0", "0000:16:03.0", "ens1f0", 0, "b4:96:91:a0:18:00"),
    ("0000:81:00.0", "0000:80:02.0", "ens2f0", 1, "b4:96:91:b1:81:00"),
)


def build() -> MachineBuilder:
    machine = MachineBuilder()
    machine.describe("two-cells.example.org")
    machine.product("Example", "Two Cells")
    _cpus_and_memory(machine)
    group = 10
    for address, port, cell, uuid, serial in GPUS:
        machine.root_port(port, numa_node=cell, iommu_group=group)
        machine.gpu(address, numa_node=cell, below=port, iommu_group=group + 1)
        for type_id, name, available in VGPU_TYPES:
            machine.mdev_type(address, type_id, name, available)
        machine.nvml(
            address,
            uuid=uuid,
            serial=serial,
            model="Tesla T4",
            compute_capability=[7, 5],
            near_cells=[cell],
            mig_enabled=None,
        )
        group += 20
    for address, port, name, cell, mac in NICS:
        machine.root_port(port, numa_node=cell, iommu_group=group)
        machine.nic(
            address, name, vfs=8, numa_node=cell, mac=mac, below=port, iommu_group=group + 1
        )
        group += 20
    machine.pci("0000:03:00.0", vendor="1a03", product="2000", class_code="030000", driver="ast")
    return machine


def _cpus_and_memory(machine: MachineBuilder) -> None:
    machine.memory(2 * CELL_KIB)
    machine.cpuinfo(count=16)
    machine.cpus("0-15")
    for cpu in range(16):
        core = cpu % 8
        machine.cpu(cpu, socket=core // 4, core=core % 4, siblings=f"{core},{core + 8}")
    machine.nodes("0-1")
    for cell, cpus in enumerate(CELL_CPUS):
        distance = "10 21" if cell == 0 else "21 10"
        machine.node(cell, cpus=cpus, memory_kib=CELL_KIB, distance=distance)
        machine.huge_pages(cell, 2048, total=1024, free=1024)
        machine.huge_pages(cell, 1048576, total=4, free=4)
    machine.huge_pages(None, 2048, total=2048, free=2048)
    machine.huge_pages(None, 1048576, total=8, free=8)


def write(directory: Path) -> None:
    build().write(directory)


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else TWO_CELLS
    if target.exists():
        shutil.rmtree(target)
    write(target)
