"""Guests on one of two like hosts, and what they and their migrations hold while they move."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.claiming.journal import Journal
from compute_agent.scheduler.moves.move import MoveKind
from compute_agent.scheduler.moves.mover import Mover, MoveStart
from tests.fixtures.allocations import new_uuid
from tests.functional.scheduler.moving import SHARING, Held, World, together
from tests.unit.scheduler.specs import spec

COLD, LIVE, EVACUATE = MoveKind.COLD, MoveKind.LIVE, MoveKind.EVACUATE


class Place:
    """Two hosts of one kind, told from those of other tests by a trait, and what one guest takes.

    `on("a")` is what the guest holds on host a; `shared` what of it is on a common provider.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.trait = f"CUSTOM_T{uuid.uuid4().hex[:12].upper()}"
        self.hosts: dict[str, str] = {}

    def asked(self, **fields: Any) -> RequestSpec:
        sizes = {"vcpus": 2, "memory_mb": 0, "root_gb": 0} | fields
        return spec({"root_required": self.trait}, **sizes)

    def named(self, host: str) -> frozenset[str]:
        """One host, as requests name those that they want or do not."""
        return frozenset({f"{host}-{self.hosts[host]}"})

    def claimed(self, instance: str, on: str) -> None:
        """Claim for a guest on one host."""
        forced = self.asked(force_hosts=self.named(on))
        self.world.scheduler().select_destinations(forced, [instance])
        assert self.world.held(instance) == self.on(on)

    def fill(self, host: str) -> None:
        """Use up the CPUs of a host."""
        whole = self.asked(vcpus=4, root_gb=0, force_hosts=self.named(host))
        self.world.scheduler().select_destinations(whole, [new_uuid()])

    def on(self, host: str) -> Held:
        raise NotImplementedError

    @property
    def shared(self) -> Held:
        return {}


class Flat(Place):
    """Hosts that have everything on their root."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        for name in "ab":
            self.hosts[name] = world.provider(name, {"VCPU": 4}, self.trait, "COMPUTE_NODE")

    def on(self, host: str) -> Held:
        return {host: {"VCPU": 2}}


class NestedOnPool(Place):
    """Hosts whose roots give nothing: CPUs on cells, disk on a pool that both share."""

    def __init__(self, world: World, room: int = 5) -> None:
        super().__init__(world)
        aggregate = new_uuid()
        # room for the guest's disk once, so that nothing fits that would count it twice
        world.provider("pool", {"DISK_GB": room}, SHARING, aggregates=(aggregate,))
        for name in "ab":
            self.hosts[name] = world.provider(
                name, {}, self.trait, "COMPUTE_NODE", aggregates=(aggregate,)
            )
            world.provider(
                f"{name}0", {"VCPU": 4}, "HW_NUMA_ROOT", parent=name, aggregates=(aggregate,)
            )

    def asked(self, **fields: Any) -> RequestSpec:
        return super().asked(**({"root_gb": 5} | fields))

    def on(self, host: str) -> Held:
        return {f"{host}0": {"VCPU": 2}, "pool": {"DISK_GB": 5}}

    @property
    def shared(self) -> Held:
        return {"pool": {"DISK_GB": 5}}


def without(held: Held, part: Held) -> Held:
    return {name: amounts for name, amounts in held.items() if name not in part}


KINDS: list[Callable[[World], Place]] = [Flat, NestedOnPool]


class Guest:
    """A guest on host a, and its moves."""

    def __init__(self, place: Place) -> None:
        self.place, self.world = place, place.world
        self.instance, self.migration = new_uuid(), new_uuid()
        place.claimed(self.instance, "a")

    def begin(self, kind: MoveKind, mover: Mover | None = None) -> MoveStart:
        refused_hosts = {"ignore_hosts": self.place.named("a")} if kind is COLD else {}
        asked = self.place.asked(**refused_hosts)
        migration = "" if kind is EVACUATE else self.migration
        return (mover or self.world.mover()[0]).begin(kind, asked, self.instance, migration)

    @property
    def state(self) -> tuple[Held, Held]:
        """What the instance and the migration hold; placement's sums must be just that."""
        held = self.world.held(self.instance), self.world.held(self.migration)
        assert self.world.used() == together(*held)
        return held

    def open_lines(self) -> int:
        return len(Journal(self.world.journal).entries())


def states(guest: Guest, kind: MoveKind) -> tuple[tuple[Held, Held], ...]:
    """What instance and migration hold before a move, in the middle of it and after it."""
    place = guest.place
    here, there = place.on("a"), place.on("b")
    if kind is EVACUATE:
        return (here, {}), ({**here, **there}, {}), (there, {})
    return (here, {}), (there, without(here, place.shared)), (there, {})
