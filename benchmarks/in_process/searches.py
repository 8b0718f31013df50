"""Fleets of hosts in memory, as rows of the store."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import os_resource_classes

from placement_server.store.changes.snapshot import InventoryRow, NameRows, ProviderRow, TreeRows

VERSION = (1, 39)
CLASS_IDS = {name: number for number, name in enumerate(os_resource_classes.STANDARDS)}
NAMES = NameRows(CLASS_IDS, {"HW_NUMA_ROOT": 1})


def inventory(name: str, total: int, ratio: float = 1.0) -> InventoryRow:
    """One inventory of a benchmark host."""
    return InventoryRow(CLASS_IDS[name], total, 0, 1, total, 1, ratio, int(total * ratio), 0)


class Tree:
    """A tree whose providers have ids and uuids that are the same in every run."""

    def __init__(self, first: int) -> None:
        self._first = first
        self.rows: list[ProviderRow] = []

    def add(
        self, parent: int | None, stock: list[InventoryRow], traits: tuple[int, ...] = ()
    ) -> int:
        """Add a provider; return its id."""
        row_id = self._first + len(self.rows)
        uuid = str(UUID(int=row_id << 80 | 0x4000_8000_0000_0000_0000))
        entries = tuple(sorted(stock, key=lambda row: row.resource_class_id))
        self.rows.append(ProviderRow(row_id, uuid, parent, self._first, entries, traits, ()))
        return row_id


def flat_hosts(count: int) -> Iterator[TreeRows]:
    """Hosts of one provider."""
    for number in range(count):
        stock = [inventory("VCPU", 64, 16.0), inventory("MEMORY_MB", 262_144, 1.5)]
        stock.append(inventory("DISK_GB", 2000))
        tree = Tree(number + 1)
        yield TreeRows(tree.add(None, stock), tuple(tree.rows))


def nested_hosts(count: int) -> Iterator[TreeRows]:
    """13 providers each: root, 2 cells, under each cell 2 GPUs and a NIC with 2 PFs."""
    for number in range(count):
        tree = Tree(13 * number + 1)
        root = tree.add(None, [inventory("DISK_GB", 2000)])
        for _cell in range(2):
            stock = [inventory("VCPU", 32), inventory("MEMORY_MB", 131_072)]
            cell = tree.add(root, stock, (1,))
            nic = tree.add(cell, [])
            for _device in range(2):
                tree.add(cell, [inventory("VGPU", 4)])
                tree.add(nic, [inventory("SRIOV_NET_VF", 8)])
        yield TreeRows(root, tuple(tree.rows))


NESTED = (
    "resources_C=VCPU:2,MEMORY_MB:2048&resources_G=VGPU:1&resources_N=SRIOV_NET_VF:1"
    "&same_subtree=_C,_G,_N&group_policy=none"
)
