"""The providers that the bank deals in.

    pool                 DISK_GB, wanted by nearly everybody
    fixed-0, fixed-1     VCPU, MEMORY_MB; their inventory never changes
    elastic-0, elastic-1 VCPU, MEMORY_MB; their VCPUs grow, and shrink below what is in use
    rush-0 ... rush-3    VCPU, claimed one by one by everybody at once until there are no more
    root-0 ── child-0    MEMORY_MB at the root; the VCPUs move between root and child

Every inventory record that is written has a `max_unit` of its own, its *stamp*: by it an
observer knows whether two looks saw the same record, and whether a refused one was stored.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Final

from tests.fixtures.allocations import claim_body
from tests.fixtures.plain_trees import make_provider

FIRST_STAMP: Final = 1_000_000
SHARED_CONSUMERS: Final = 3

PROJECT: Final = {"project_id": "bank", "user_id": "teller", "consumer_type": "INSTANCE"}


@dataclass
class World:
    """Uuids by role. `trees` are pairs of root and child."""

    pool: str = ""
    fixed: list[str] = field(default_factory=list)
    elastic: list[str] = field(default_factory=list)
    rushes: list[str] = field(default_factory=list)
    trees: list[list[str]] = field(default_factory=list)
    shared_consumers: list[str] = field(default_factory=list)

    def group_of(self, provider: str) -> str:
        """The provider, or the root of its tree: what a reshape does not change."""
        for root, child in self.trees:
            if provider == child:
                return root
        return provider

    def grouped(self, held: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
        """Return amounts by provider as amounts by group."""
        holding: dict[str, dict[str, int]] = {}
        for provider, resources in held.items():
            group = holding.setdefault(self.group_of(provider), {})
            for name, amount in resources.items():
                group[name] = group.get(name, 0) + amount
        return holding

    def providers(self) -> list[str]:
        return [
            self.pool,
            *self.fixed,
            *self.elastic,
            *self.rushes,
            *chain.from_iterable(self.trees),
        ]

    def keeps_its_capacity(self, provider: str) -> bool:
        return provider not in self.elastic

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def load(cls, path: Path) -> World:
        return cls(**json.loads(path.read_text()))


class StampSource:
    """Stamps that no other writer gives out."""

    def __init__(self, writer: int) -> None:
        self._next = FIRST_STAMP * (writer + 1)

    def record(self, total: int, **more: Any) -> dict[str, Any]:
        self._next += 1
        return {"total": total, "max_unit": self._next, **more}


def build(must: Any, seed: str) -> World:
    """Create the world. `must(method, path, body)` gives the decoded answer or raises."""
    stamps = StampSource(0)

    def provider(name: str, inventories: dict[str, Any], parent: str | None = None) -> str:
        created = str(uuid.uuid5(uuid.NAMESPACE_URL, f"bank/{seed}/{name}"))
        return make_provider(must, name, inventories, uuid=created, parent=parent)

    def host(name: str, vcpus: int) -> str:
        return provider(
            name,
            {
                "VCPU": stamps.record(vcpus),
                "MEMORY_MB": stamps.record(8192, reserved=512, allocation_ratio=1.5),
            },
        )

    world = World(pool=provider("pool", {"DISK_GB": stamps.record(150)}))
    world.fixed = [host(f"fixed-{number}", 24) for number in range(2)]
    world.elastic = [host(f"elastic-{number}", 24) for number in range(2)]
    world.rushes = [provider(f"rush-{n}", {"VCPU": stamps.record(10)}) for n in range(4)]
    root = host("root-0", 16)
    world.trees = [[root, provider("child-0", {}, parent=root)]]
    for number in range(SHARED_CONSUMERS):
        consumer = str(uuid.uuid5(uuid.NAMESPACE_URL, f"bank/{seed}/shared-{number}"))
        must(
            "PUT",
            f"/allocations/{consumer}",
            claim_body({world.fixed[0]: {"VCPU": 1}}, **PROJECT),
        )
        world.shared_consumers.append(consumer)
    return world
