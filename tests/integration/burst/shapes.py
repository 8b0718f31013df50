"""Shapes of instances, and an oracle that says of free amounts alone whether a host has room.

The oracle knows nothing of queries and layouts. It finds room only where any scheduler has to find
it: processors and memory of a guest's node on one cell of the host, devices anywhere on the host.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Free = Mapping[str, Mapping[str, int]]
"""What is free on one host: provider name, resource class, amount."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What an instance needs.

    :ivar nodes: the NUMA nodes that it is split into evenly.
    :ivar devices: resource class and number of devices, each from another provider.
    :ivar extra_specs: more of them, of which the oracle knows nothing.
    """

    name: str
    vcpus: int
    memory_mb: int
    disk_gb: int = 1
    nodes: int = 0
    devices: Mapping[str, int] = field(default_factory=dict)
    extra_specs: Mapping[str, str] = field(default_factory=dict)

    def spec(self, project: str) -> dict[str, Any]:
        """Return the request specification of an instance of a project."""
        extra_specs = dict(self.extra_specs)
        if self.nodes:
            extra_specs["hw:numa_nodes"] = str(self.nodes)
        wanted = [name for name, count in sorted(self.devices.items()) for _ in range(count)]
        for number, name in enumerate(wanted, 1):
            extra_specs[f"resources{number}:{name}"] = "1"
        if len(wanted) > 1:
            extra_specs["group_policy"] = "isolate"
        return {
            "project_id": project,
            "user_id": "user",
            "flavor": {
                "vcpus": self.vcpus,
                "memory_mb": self.memory_mb,
                "root_gb": self.disk_gb,
                "extra_specs": extra_specs,
            },
            "image": {"id": "image", "properties": {}},
        }

    def fits(self, free: Free) -> bool:
        """Whether a host with so much free has room for one more."""
        count = max(self.nodes, 1)
        vcpus, memory_mb = self.vcpus // count, self.memory_mb // count
        cells = [
            provider
            for provider in free.values()
            if provider.get("VCPU", 0) >= vcpus and provider.get("MEMORY_MB", 0) >= memory_mb
        ]
        return (
            len(cells) >= count
            and any(provider.get("DISK_GB", 0) >= self.disk_gb for provider in free.values())
            and all(
                sum(provider.get(name, 0) > 0 for provider in free.values()) >= number
                for name, number in self.devices.items()
            )
        )


SHAPES: Sequence[Shape] = (
    Shape("tiny", 1, 256),
    Shape("small", 2, 1024),
    Shape("large", 6, 4096, disk_gb=10),
    Shape("one node", 4, 2048, nodes=1),
    Shape("two nodes", 4, 2048, nodes=2),
    Shape("vgpu", 1, 512, devices={"VGPU": 1}),
    Shape("two vgpus", 2, 1024, devices={"VGPU": 2}),
    Shape("function", 1, 512, devices={"SRIOV_NET_VF": 1}),
    Shape("two functions", 2, 512, devices={"SRIOV_NET_VF": 2}),
    Shape("node with devices", 2, 1024, nodes=1, devices={"VGPU": 1, "SRIOV_NET_VF": 1}),
)


def in_turn(number: int) -> list[Shape]:
    """Return so many shapes, each in its turn."""
    return list(itertools.islice(itertools.cycle(SHAPES), number))
