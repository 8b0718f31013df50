"""Machines that differ in cells, CPUs and memory, with the numbers that real ones have.

Each is a table of cells and cores; a function of `MachineBuilder` writes its files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tests.data.kernel_formats import numbers
from tests.data.machine_builder import MachineBuilder
from tests.data.machine_parts import GIB, machine_named

MIB: Final = 1 << 10

POWER: Final = "processor : 0\ncpu : {cpu}, altivec supported\n\nmachine : {machine}"
ARM: Final = (
    "processor : 0\nFeatures : fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics\n"
    "CPU implementer : 0x41\nCPU architecture: 8\nCPU part : {part}"
)
LOONGSON: Final = (
    "system type : generic-loongson-machine\n\nprocessor : 0\nCPU Family : Loongson-64bit\n"
    "ISA : loongarch32 loongarch64\nFeatures : cpucfg lam ual fpu"
)
RISCV: Final = "processor : 0\nhart : 1\nisa : rv64imafdc\nmmu : sv39\nuarch : sifive,u74-mc"


@dataclass(frozen=True)
class Cell:
    """A node: the CPUs in it that are online, its memory, its pools of huge pages by KiB."""

    id: int
    cpus: str
    kib: int
    pages: Mapping[int, int] = field(default_factory=dict)
    offline: str = ""


def add(
    machine: MachineBuilder,
    cells: Iterable[Cell],
    cores: Iterable[str],
    *,
    distance: Callable[[int, int], int] = lambda one, other: 10 if one == other else 20,
    socket_of: Callable[[int], int] = lambda _cpu: 0,
    total_kib: int | None = None,
) -> None:
    """Add cells and cores.

    :param cores: the threads of each core, as a list of the kernel's; those online only.
    :param total_kib: of the host; None = of all cells together.
    """
    nodes = sorted(cells, key=lambda cell: cell.id)
    online = sorted({cpu for cell in nodes for cpu in numbers(cell.cpus)})
    offline = [cpu for cell in nodes for cpu in numbers(cell.offline)]
    machine.cpus(written(online), written([*online, *offline]))
    machine.cpuinfo(count=len(online))
    machine.memory(sum(cell.kib for cell in nodes) if total_kib is None else total_kib)
    machine.nodes(written(cell.id for cell in nodes))
    for cell in nodes:
        row = " ".join(str(distance(cell.id, other.id)) for other in nodes)
        machine.node(cell.id, cpus=cell.cpus, memory_kib=cell.kib, distance=row)
        for cpu in numbers(cell.offline):
            machine.link(
                f"devices/system/node/node{cell.id}/cpu{cpu}", f"devices/system/cpu/cpu{cpu}"
            )
            machine.sys(f"devices/system/cpu/cpu{cpu}/online", 0)
        for size, count in cell.pages.items():
            machine.huge_pages(cell.id, size, total=count, free=count)
    for core, threads in enumerate(cores):
        for cpu in numbers(threads):
            machine.cpu(cpu, socket=socket_of(cpu), core=core, siblings=threads)


def written(cpus: Iterable[int]) -> str:
    return ",".join(map(str, sorted(cpus)))


def cpus_from(first: int, count: int, step: int = 1) -> list[int]:
    return list(range(first, first + count * step, step))


def altra() -> MachineBuilder:
    """An ARM server: 80 CPUs of one thread, 64 KiB pages and three sizes of huge ones."""
    machine = machine_named("altra")
    pages = {2048: 1024, 524288: 8, 16777216: 2}
    add(machine, [Cell(0, "0-79", 256 * GIB, pages)], map(str, range(80)))
    machine.proc("cpuinfo", ARM.format(part="0xd0c"))
    return machine


def sub_numa() -> MachineBuilder:
    """Two sockets of two sub-NUMA clusters; CPUs are numbered through the clusters in turn."""
    machine = machine_named("sub-numa")
    cells = [
        Cell(n, written([*cpus_from(n, 6, 4), *cpus_from(24 + n, 6, 4)]), 64 * GIB, {2048: 256})
        for n in range(4)
    ]
    cores = [f"{cpu},{cpu + 24}" for cpu in range(24)]
    add(machine, cells, cores, distance=near(2, 12, 21), socket_of=lambda cpu: cpu % 4 // 2)
    machine.nic("0000:6a:00.0", "ens2", vfs=4, numa_node=3, iommu_group=40)
    return machine


def milan() -> MachineBuilder:
    """Two sockets with four cells each; a cell has two groups of four cores with an L3 cache."""
    machine = machine_named("milan")
    cells = [
        Cell(n, f"{8 * n}-{8 * n + 7},{64 + 8 * n}-{64 + 8 * n + 7}", 32 * GIB, {1048576: 4})
        for n in range(8)
    ]
    cores = [f"{cpu},{cpu + 64}" for cpu in range(64)]
    add(machine, cells, cores, distance=near(4, 12, 32), socket_of=lambda cpu: cpu % 64 // 32)
    for cpu in range(128):
        group = cpu % 64 // 4
        first, second = 4 * group, 64 + 4 * group
        machine.l3_cache(cpu, f"{first}-{first + 3},{second}-{second + 3}", number=group)
    machine.nic("0000:c1:00.0", "enp193s0", vfs=8, numa_node=4, iommu_group=60)
    return machine


def twelve_cells() -> MachineBuilder:
    """Four sockets of three clusters each, as Xeons have from the sixth generation on."""
    machine = machine_named("twelve-cells")
    cells = [Cell(n, f"{2 * n}-{2 * n + 1}", 48 * GIB) for n in range(12)]
    cores = [str(cpu) for cpu in range(24)]
    add(machine, cells, cores, distance=near(3, 13, 31), socket_of=lambda cpu: cpu // 6)
    return machine


def sixteen_cells() -> MachineBuilder:
    """Eight sockets of two clusters in two chassis: near, far, and through the node controllers."""
    machine = machine_named("sixteen-cells")

    def distance(one: int, other: int) -> int:
        steps = (one // 8 != other // 8, one // 2 != other // 2, one != other)
        return next((d for d, differs in zip((50, 18, 12), steps, strict=True) if differs), 10)

    cells = [Cell(n, f"{n},{n + 16}", 32 * GIB, {1048576: n % 2}) for n in range(16)]
    cores = [f"{cpu},{cpu + 16}" for cpu in range(16)]
    add(machine, cells, cores, distance=distance, socket_of=lambda cpu: cpu % 16 // 2)
    return machine


def thirty_two_cells() -> MachineBuilder:
    """Sixteen sockets of two clusters, with a card on every fourth cell."""
    machine = machine_named("thirty-two-cells")
    cells = [Cell(n, f"{n},{n + 32}", 16 * GIB, {2048: 64}) for n in range(32)]
    cores = [f"{cpu},{cpu + 32}" for cpu in range(32)]
    add(machine, cells, cores, distance=near(2, 12, 40), socket_of=lambda cpu: cpu % 32 // 2)
    for cell in range(0, 32, 4):
        machine.nic(
            f"00{cell:02x}:01:00.0",
            f"enP{cell}p1s0",
            vfs=4,
            numa_node=cell,
            mac=f"b4:96:91:32:{cell:02x}:00",
            iommu_group=100 + 10 * cell,
        )
    return machine


def power8() -> MachineBuilder:
    """POWER8: cells 0, 1, 16 and 17, eight threads to a core, pages of 16 MiB and 16 GiB."""
    machine = machine_named("power8")
    first_cpus = {0: 0, 1: 40, 16: 80, 17: 120}
    pages = {16384: 128, 16777216: 0}
    cells = [Cell(cell, f"{cpu}-{cpu + 15}", 64 * GIB, pages) for cell, cpu in first_cpus.items()]
    cores = [f"{cpu}-{cpu + 7}" for first in first_cpus.values() for cpu in (first, first + 8)]
    add(
        machine,
        cells,
        cores,
        distance=lambda one, other: 10 if one == other else 20 if one // 16 == other // 16 else 40,
        socket_of=lambda cpu: cpu // 40,
    )
    machine.proc("cpuinfo", POWER.format(cpu="POWER8 (raw)", machine="PowerNV 8247-42L"))
    machine.proc("sys/kernel/arch", "ppc64le")
    return machine


def power9_gpus() -> MachineBuilder:
    """POWER9 with three GPUs, whose memory is cells 253 to 255; NVML is not asked."""
    machine = machine_named("power9-gpus")
    cells = [Cell(0, "0-15", 128 * GIB), Cell(8, "16-31", 128 * GIB)]
    cells += [Cell(cell, "", 15 * GIB + 768 * MIB) for cell in (253, 254, 255)]
    cores = [f"{cpu}-{cpu + 3}" for cpu in range(0, 32, 4)]
    add(
        machine,
        cells,
        cores,
        distance=lambda one, other: 10 if one == other else 40 if max(one, other) < 253 else 80,
        socket_of=lambda cpu: 8 * (cpu // 16),
    )
    machine.proc("cpuinfo", POWER.format(cpu="POWER9", machine="PowerNV 8335-GTH"))
    for cell, address in ((255, "0004:04:00.0"), (254, "0004:05:00.0"), (253, "0035:03:00.0")):
        machine.gpu(address, product="1db5", numa_node=8 * (address > "0005"), iommu_group=cell)
        status = f"Node:      {cell}\nStatus:    online\nAddress:   40000000000"
        machine.proc(f"driver/nvidia/gpus/{address}/numa_status", status)
    return machine


def grace_hopper() -> MachineBuilder:
    """A CPU of one thread and a GPU whose memory is cell 1; cells 2 to 8 are for its parts."""
    machine = machine_named("grace-hopper")
    cells = [Cell(0, "0-71", 480 * GIB, {2048: 0, 524288: 16}), Cell(1, "", 95 * GIB)]
    cells += [Cell(cell, "", 0) for cell in range(2, 9)]
    add(
        machine,
        cells,
        map(str, range(72)),
        distance=lambda one, other: 10 if one == other else 80 if 0 in (one, other) else 255,
    )
    machine.proc("cpuinfo", ARM.format(part="0xd4f"))
    machine.gpu("0009:01:00.0", product="2342", numa_node=0, iommu_group=9)
    machine.nvml(
        "0009:01:00.0",
        uuid="GPU-9b0b8a3c-0f6e-4c3b-8a11-9e4f7b2d6a09",
        model="NVIDIA GH200 480GB",
        compute_capability=[9, 0],
        near_cells=[0],
        memory_cell=1,
    )
    return machine


def bare_socket() -> MachineBuilder:
    """Two sockets, of which the second has no memory: its CPUs work from that of the first."""
    machine = machine_named("bare-socket")
    cells = [Cell(0, "0-3,8-11", 64 * GIB, {2048: 128}), Cell(1, "4-7,12-15", 0)]
    cores = [f"{cpu},{cpu + 8}" for cpu in range(8)]
    add(machine, cells, cores, socket_of=lambda cpu: cpu % 8 // 4)
    machine.nic("0000:81:00.0", "ens2", vfs=2, numa_node=1, iommu_group=30)
    return machine


def expanders() -> MachineBuilder:
    """A CXL expander on each of two sockets, and persistent memory that is used as RAM."""
    machine = machine_named("expanders")
    cells = [Cell(n, f"{4 * n}-{4 * n + 3}", 128 * GIB) for n in range(2)]
    cells += [Cell(2, "", 256 * GIB), Cell(3, "", 256 * GIB), Cell(4, "", 504 * GIB)]
    owner = {0: 0, 1: 1, 2: 0, 3: 1, 4: 0}

    def distance(one: int, other: int) -> int:
        near_one = 14 if owner[one] == owner[other] else 24
        return 10 if one == other else near_one if max(one, other) > 1 else 21

    add(machine, cells, map(str, range(8)), distance=distance, socket_of=lambda cpu: cpu // 4)
    return machine


def hybrid_cores() -> MachineBuilder:
    """Four fast cores of two threads and eight slow ones of one."""
    machine = machine_named("hybrid-cores")
    cores = [*(f"{cpu}-{cpu + 1}" for cpu in range(0, 8, 2)), *map(str, range(8, 16))]
    add(machine, [Cell(0, "0-15", 32 * GIB)], cores)
    return machine


def switched_off() -> MachineBuilder:
    """Even CPUs on cell 0, odd ones on cell 1; all but the first two of each are switched off."""
    machine = machine_named("switched-off")
    cells = [
        Cell(n, written([n, n + 2]), 64 * GIB, offline=written(cpus_from(n + 4, 14, 2)))
        for n in range(2)
    ]
    add(machine, cells, map(str, range(4)), socket_of=lambda cpu: cpu % 2)
    return machine


def loongson() -> MachineBuilder:
    """A LoongArch server: four cells of four cores of one socket, pages of 16 KiB and 32 MiB."""
    machine = machine_named("loongson")
    cells = [Cell(n, f"{4 * n}-{4 * n + 3}", 16 * GIB, {32768: 8}) for n in range(4)]
    add(machine, cells, map(str, range(16)), distance=near(4, 15, 20))
    machine.proc("cpuinfo", LOONGSON)
    machine.pci("0000:00:06.1", vendor="0014", product="7a36", class_code="030000")
    return machine


def plain_guest() -> MachineBuilder:
    """A virtual machine that is told nothing: no topology of CPUs, cards on the root bus."""
    machine = machine_named("plain-guest")
    add(machine, [Cell(0, "0-3", 8 * GIB)], [])
    here = machine.pci(
        "0000:00:03.0",
        vendor="1af4",
        product="1000",
        class_code="020000",
        numa_node=-1,
        driver="virtio-pci",
    )
    interface = f"{here}/virtio0/net/ens3"
    for name, value in {
        "address": "02:00:00:00:00:03",
        "type": 1,
        "flags": "0x1003",
        "operstate": "up",
        "speed": -1,
        "uevent": "INTERFACE=ens3\nIFINDEX=2",
    }.items():
        machine.sys(f"{interface}/{name}", value)
    machine.link(f"{interface}/subsystem", "class/net")
    machine.link("class/net/ens3", interface)
    machine.pci("0000:00:02.0", vendor="1234", product="1111", class_code="030000", numa_node=-1)
    return machine


def riscv() -> MachineBuilder:
    """A RISC-V board without NUMA, whose cores have no number."""
    machine = machine_named("riscv")
    machine.cpus("0-3")
    machine.memory(8 * GIB)
    for cpu in range(4):
        machine.cpu(cpu, socket=0, core=-1, siblings=str(cpu))
    machine.proc("cpuinfo", RISCV)
    return machine


def fake_cells() -> MachineBuilder:
    """A kernel booted with `numa=fake=4`: the CPUs are in each of four cells."""
    machine = machine_named("fake-cells")
    cells = [Cell(n, "0-3", 4 * GIB) for n in range(4)]
    add(machine, cells, ["0-1", "2-3"], distance=lambda *_: 10)
    return machine


def old_kernel() -> MachineBuilder:
    """Linux 3.10, whose nodes count the memory that it keeps for itself: 1.4 % too much."""
    machine = machine_named("old-kernel")
    cells = [Cell(n, f"{4 * n}-{4 * n + 3}", 64 * GIB, {2048: 512}) for n in range(4)]
    cores = [str(cpu) for cpu in range(16)]
    total = 4 * 64 * GIB - 3_800_000
    add(machine, cells, cores, socket_of=lambda cpu: cpu // 4, total_kib=total)
    return machine


def near(cells_of_socket: int, inside: int, between: int) -> Callable[[int, int], int]:
    """Return distances within a socket and between sockets."""

    def distance(one: int, other: int) -> int:
        if one == other:
            return 10
        return inside if one // cells_of_socket == other // cells_of_socket else between

    return distance


CELL_MACHINES: Final[dict[str, Callable[[], MachineBuilder]]] = {
    "altra": altra,
    "sub-numa": sub_numa,
    "milan": milan,
    "twelve-cells": twelve_cells,
    "sixteen-cells": sixteen_cells,
    "thirty-two-cells": thirty_two_cells,
    "power8": power8,
    "power9-gpus": power9_gpus,
    "grace-hopper": grace_hopper,
    "bare-socket": bare_socket,
    "expanders": expanders,
    "hybrid-cores": hybrid_cores,
    "switched-off": switched_off,
    "loongson": loongson,
    "plain-guest": plain_guest,
    "riscv": riscv,
    "fake-cells": fake_cells,
    "old-kernel": old_kernel,
}
