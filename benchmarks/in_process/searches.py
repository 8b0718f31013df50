"""Fleets of hosts in memory, as rows of the store."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import os_resource_classes
import os_traits

from placement_server.store.changes.snapshot import InventoryRow, NameRows, ProviderRow, TreeRows

VERSION = (1, 39)
ZONE = "aaaaaaaa-0000-0000-0000-000000000001"
CLASS_IDS = {name: number for number, name in enumerate(os_resource_classes.STANDARDS)}
TRAIT_IDS = {name: number for number, name in enumerate(sorted(os_traits.get_traits()), 1)}
NAMES = NameRows(CLASS_IDS, TRAIT_IDS)
HOST_TRAITS = tuple(sorted(TRAIT_IDS[name] for name in sorted(os_traits.get_traits("HW_CPU_"))[:8]))
REQUIRED = "HW_CPU_X86_AVX2"


def inventory(name: str, total: int, used: int = 0, ratio: float = 1.0) -> InventoryRow:
    """One inventory of a benchmark host."""
    capacity = int(total * ratio)
    return InventoryRow(
        CLASS_IDS[name], total, 0, 1, total, 1, ratio, capacity, min(used, capacity)
    )


class Ids:
    """Provider ids and uuids, the same in every run."""

    def __init__(self) -> None:
        self.last = 0

    def provider(
        self,
        parent: ProviderRow | None,
        stock: list[InventoryRow],
        traits: tuple[int, ...] = (),
        aggregates: tuple[str, ...] = (),
    ) -> ProviderRow:
        """Return the next provider."""
        self.last += 1
        return ProviderRow(
            id=self.last,
            uuid=str(uuid.UUID(int=self.last << 80 | 0x4000_8000_0000_0000_0000)),
            parent_id=parent.id if parent else None,
            root_id=parent.root_id if parent else self.last,
            inventories=tuple(sorted(stock, key=lambda row: row.resource_class_id)),
            trait_ids=traits,
            aggregates=aggregates,
        )


def flat_hosts(count: int) -> Iterator[TreeRows]:
    """Hosts of one provider; each has the required trait, half are in the zone's aggregate."""
    ids = Ids()
    traits = tuple(sorted({*HOST_TRAITS, TRAIT_IDS[REQUIRED]}))
    for number in range(count):
        stock = [
            inventory("VCPU", 64, number % 32, 16.0),
            inventory("MEMORY_MB", 262_144, 1024 * (number % 32), 1.5),
            inventory("DISK_GB", 2000, 20 * (number % 32)),
        ]
        host = ids.provider(None, stock, traits, (ZONE,))
        yield TreeRows(host.id, (host,))


def nested_hosts(count: int) -> Iterator[TreeRows]:
    """13 providers each: root, 2 cells, under each cell 2 GPUs and a NIC with 2 PFs."""
    ids = Ids()
    numa = (TRAIT_IDS["HW_NUMA_ROOT"],)
    for number in range(count):
        root = ids.provider(None, [inventory("DISK_GB", 2000, number % 7)], (), (ZONE,))
        rows = [root]
        for _cell in range(2):
            cell = ids.provider(
                root, [inventory("VCPU", 32, number % 5), inventory("MEMORY_MB", 131_072)], numa
            )
            nic = ids.provider(cell, [])
            rows += [cell, nic]
            rows += [ids.provider(cell, [inventory("VGPU", 4)]) for _gpu in range(2)]
            rows += [ids.provider(nic, [inventory("SRIOV_NET_VF", 8)]) for _pf in range(2)]
        yield TreeRows(root.id, tuple(rows))


NESTED = (
    "resources_C=VCPU:2,MEMORY_MB:2048&resources_G=VGPU:1&resources_N=SRIOV_NET_VF:1"
    "&same_subtree=_C,_G,_N&group_policy=none"
)
