"""Parts that machines of the catalogue share: cells with their CPUs, cards with ports, GPUs."""

from __future__ import annotations

from typing import Final

from tests.data.machine_builder import MachineBuilder

GIB: Final = 1 << 20
"""In KiB, the unit of the kernel."""

T4_TYPES: Final = (
    ("nvidia-222", "GRID T4-1B", 16, 1024),
    ("nvidia-230", "GRID T4-1Q", 16, 1024),
    ("nvidia-231", "GRID T4-2Q", 8, 2048),
    ("nvidia-232", "GRID T4-4Q", 4, 4096),
)
A40_TYPES: Final = (
    ("nvidia-557", "NVIDIA A40-1Q", 32, 1024),
    ("nvidia-563", "NVIDIA A40-24Q", 2, 24576),
)
"""Id, name, how many fit on one GPU, MiB of memory each."""


def machine_named(name: str) -> MachineBuilder:
    machine = MachineBuilder()
    machine.describe(f"{name}.example.org")
    machine.product("Example", name)
    return machine


def add_cells(
    machine: MachineBuilder, *, sockets: int, cells_of_socket: int, cores: int, cell_kib: int
) -> None:
    """Add cells of as many cores with two threads each.

    Second threads are numbered after all first ones.
    """
    count = sockets * cells_of_socket
    first_threads = count * cores
    machine.memory(count * cell_kib)
    machine.cpuinfo(count=2 * first_threads)
    machine.cpus(f"0-{2 * first_threads - 1}")
    for cpu in range(2 * first_threads):
        core = cpu % first_threads
        machine.cpu(
            cpu,
            socket=core // (cells_of_socket * cores),
            core=core % (cells_of_socket * cores),
            siblings=f"{core},{core + first_threads}",
        )
    machine.nodes("0" if count == 1 else f"0-{count - 1}")
    for cell in range(count):
        start, end = cell * cores, (cell + 1) * cores - 1
        machine.node(
            cell,
            cpus=f"{start}-{end},{start + first_threads}-{end + first_threads}",
            memory_kib=cell_kib,
            distance=" ".join(
                str(_distance(cell, other, cells_of_socket)) for other in range(count)
            ),
        )
        machine.huge_pages(cell, 2048, total=512, free=512)
        machine.huge_pages(cell, 1048576, total=2, free=2)
    machine.huge_pages(None, 2048, total=512 * count, free=512 * count)
    machine.huge_pages(None, 1048576, total=2 * count, free=2 * count)


def _distance(cell: int, other: int, cells_of_socket: int) -> int:
    if cell == other:
        return 10
    return 12 if cell // cells_of_socket == other // cells_of_socket else 32


def add_card(machine: MachineBuilder, cell: int, bus: int, *, ports: int, vfs: int) -> None:
    """Add a card with as many ports, each with all of its VFs."""
    port = machine.root_port(f"0000:{bus - 1:02x}:02.0", numa_node=cell, iommu_group=bus)
    for function in range(ports):
        machine.nic(
            f"0000:{bus:02x}:00.{function}",
            f"ens{cell + 1}f{function}np{function}",
            vfs=vfs,
            numa_node=cell,
            mac=f"b4:96:91:{bus:02x}:00:{function:02x}",
            below=port,
            iommu_group=200 + 100 * cell + 20 * function,
        )


def add_t4(machine: MachineBuilder, address: str, cell: int, number: int) -> None:
    bus = int(address.split(":")[1], 16)
    port = machine.root_port(
        f"0000:{bus & 0xF0:02x}:{bus & 0xF:02x}.0", numa_node=cell, iommu_group=20 + 2 * number
    )
    machine.gpu(address, numa_node=cell, below=port, iommu_group=21 + 2 * number)
    add_mdev_types(machine, address)
    machine.nvml(address, **nvml_t4(number), near_cells=[cell])


def add_mdev_types(machine: MachineBuilder, address: str) -> None:
    for type_id, name, fit, _ in T4_TYPES:
        machine.mdev_type(address, type_id, name, fit)


def nvml_t4(number: int) -> dict[str, object]:
    return {
        "uuid": f"GPU-7f8a3c1e-52b4-4a0e-9d55-3d0a6c9b1e0{number}",
        "serial": f"156202000123{number}",
        "model": "Tesla T4",
        "compute_capability": [7, 5],
        "vgpu_types": vgpu_types(T4_TYPES),
    }


def vgpu_types(types: tuple[tuple[str, str, int, int], ...]) -> list[dict[str, object]]:
    return [
        {
            "id": type_id,
            "name": name,
            "vgpu_class": "Quadro" if name.endswith("Q") else "NVS",
            "framebuffer_mib": mib,
            "max_instances": fit,
            "max_instances_per_guest": 1,
            "gpu_instance_profile": None,
        }
        for type_id, name, fit, mib in types
    ]


def add_gpu_with_vfs(machine: MachineBuilder, pf: str, *, product: str, vfs: int) -> list[str]:
    """Add a GPU on cell 1 that has made all of its VFs; return their addresses."""
    port = machine.root_port("0000:80:01.0", numa_node=1, iommu_group=30)
    machine.gpu(pf, product=product, numa_node=1, below=port, iommu_group=31)
    machine.sriov(pf, total=vfs, made=vfs)
    addresses = []
    for number in range(vfs):
        slot, function = divmod(number + 4, 8)
        vf = f"{pf[:8]}{slot:02x}.{function}"
        machine.gpu(vf, product=product, numa_node=1, below=port, iommu_group=32 + number)
        machine.virtual_function(pf, number, vf)
        addresses.append(vf)
    return addresses


def mig_profile(
    name: str, profile_id: int, slices: int, memory_mib: int, fit: int
) -> dict[str, object]:
    return {
        "name": name,
        "profile_id": profile_id,
        "slices": slices,
        "memory_mib": memory_mib,
        "max_instances": fit,
    }
