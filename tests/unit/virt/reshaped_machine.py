"""The machine that is reshaped: two cells of four CPUs with huge pages, and a GPU at each."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from compute_agent.discovery.facts import GpuVf, HostTopology, MdevType, PciAddress
from compute_agent.virt.cpu_sets import CpuSets
from compute_agent.virt.fake.topology import MDEV_TYPE, MachineSize, fake_topology
from compute_agent.virt.layout import LayoutOptions
from compute_agent.virt.layout.options import GpuOptions, MdevTypeOptions

from .hosts import NAME, ROOT, Host

SIZE: Final = MachineSize(
    cells=2, cpus_per_cell=4, memory_mib_per_cell=8192, pages_2mib_per_cell=512, gpus=2, nics=0
)
GPU0, GPU1 = PciAddress("0000:20:00.0"), PciAddress("0000:21:00.0")
HALF_DEDICATED: Final = CpuSets(frozenset({0, 1, 4, 5}), frozenset({2, 3, 6, 7}))
"""Two CPUs of each cell are shared and two are dedicated."""

VGPU: Final = GpuOptions(mdev_types=(MdevTypeOptions(MDEV_TYPE),))
FLAT: Final = LayoutOptions(reserved_memory_mib=0, gpu=VGPU)

ELSEWHERE: Final = "99999999-0000-4000-8000-000000000000"
"""A provider of another host, of which consumers hold something too."""


def machine(**size: int) -> HostTopology:
    return fake_topology(NAME, replace(SIZE, **size))


def sriov_machine() -> HostTopology:
    """The machine with one GPU only, which makes its vGPUs on three functions."""
    facts = machine(gpus=1)
    vfs = tuple(
        GpuVf(
            PciAddress(f"0000:20:00.{i + 1}"),
            i,
            facts.gpus[0].numa_node,
            mdev_types=(MdevType(MDEV_TYPE, 1),),
        )
        for i in range(3)
    )
    return replace(facts, gpus=(replace(facts.gpus[0], mdev_types=(), vfs=vfs),))


def root_with(host: Host, resource_class: str, total: int) -> None:
    """Let the host's root count a class that an earlier layout had there."""
    inventory = host.provider().inventory
    host.tree.update_inventory(ROOT, {**inventory, resource_class: {"total": total}})
