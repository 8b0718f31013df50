"""Guests on the cells of random hosts of a placement in process, against an enumeration.

A host is claimed exactly when some arrangement of guest and groups fits it, and what is claimed is
such an arrangement: in particular a guest that something must be beside is on one cell.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compute_agent.placement.transports.in_process import InProcessTransport
from compute_agent.request.candidate_request import RequestGroup
from compute_agent.request.spec import RequestedGroup, RequestSpec
from compute_agent.scheduler.errors import NoValidHost
from tests.functional.either_placement import ours
from tests.functional.scheduler.moving import World
from tests.unit.scheduler.specs import spec

GUEST = "_NUMA0"
RACK = "CUSTOM_RACK"


@dataclass(frozen=True)
class Cell:
    """A NUMA cell, with a card below it where `vgpu` is above 0."""

    vcpu: int
    memory_mb: int
    vgpu: int
    rack: bool


@dataclass(frozen=True)
class GuestDemand:
    """A guest, groups of one unit each (class by suffix), and what binds them together."""

    vcpu: int
    memory_mb: int
    groups: dict[str, str]
    beside: frozenset[str]
    policy: str
    rack: bool

    def spec(self, mark: str) -> RequestSpec:
        extra = {"group_policy": self.policy}
        if self.beside:
            extra["same_subtree"] = ",".join([GUEST, *sorted(self.beside)])
        if self.rack:
            extra[f"trait:{RACK}"] = "required"
        return spec(
            extra,
            vcpus=self.vcpu,
            memory_mb=self.memory_mb,
            root_gb=0,
            requested_groups=tuple(
                RequestedGroup(suffix, RequestGroup({name: 1}))
                for suffix, name in self.groups.items()
            ),
            root_required=frozenset({mark}),
        )


@st.composite
def asked_for(draw: st.DrawFn) -> GuestDemand:
    groups = draw(
        st.dictionaries(st.sampled_from("AB"), st.sampled_from(["VGPU", "VCPU"]), max_size=2)
    )
    return GuestDemand(
        vcpu=draw(st.integers(2, 6)),
        memory_mb=draw(st.integers(1, 6)),
        groups=groups,
        beside=frozenset(draw(st.sets(st.sampled_from(sorted(groups))))) if groups else frozenset(),
        policy=(policy := draw(st.sampled_from(["none", "isolate"]))),
        # the trait is a group of its own, which isolation would keep off the guest's cell
        rack=policy == "none" and draw(st.booleans()),
    )


cells_of_a_host = st.lists(
    st.builds(Cell, st.integers(1, 4), st.integers(1, 4), st.integers(0, 2), st.booleans()),
    min_size=2,
    max_size=3,
)
Place = tuple[str, int]
"""A cell (`cell`) or the card below it (`card`), by the cell's number."""


def fits(
    asked: GuestDemand, cells: list[Cell], groups: dict[str, Place], guest: tuple[int, ...]
) -> bool:
    """Whether groups can be on these providers while the guest is on these cells."""
    places = [*groups.values(), *(("cell", cell) for cell in guest)]
    if asked.policy == "isolate" and len(set(places)) < len(places):
        return False
    if asked.beside and (
        len(guest) > 1 or any(groups[suffix][1] != guest[0] for suffix in asked.beside)
    ):
        return False
    if asked.rack and not all(cells[cell].rack for cell in guest):
        return False
    left = {
        place: sum(1 for other in groups.values() if other == place) for place in groups.values()
    }
    for (kind, cell), taken in left.items():
        if taken > (cells[cell].vgpu if kind == "card" else cells[cell].vcpu):
            return False
    free = [cells[cell].vcpu - left.get(("cell", cell), 0) for cell in guest]
    memory = [cells[cell].memory_mb for cell in guest]
    # one cell alone has both; of several each gives CPUs or memory
    return (
        sum(free) >= asked.vcpu
        and sum(memory) >= asked.memory_mb
        and len(guest) <= asked.vcpu + asked.memory_mb
        and sum(amount == 0 for amount in free) <= asked.memory_mb
        and any(cells[cell].vcpu > left.get(("cell", cell), 0) for cell in range(len(cells)))
    )


def arrangements(
    asked: GuestDemand, cells: list[Cell]
) -> Iterator[tuple[dict[str, Place], tuple[int, ...]]]:
    """Yield every way to put the groups and the guest somewhere, fitting or not."""
    numbers = range(len(cells))
    options: list[Iterable[Place]] = [
        [("card" if name == "VGPU" else "cell", number) for number in numbers]
        for name in asked.groups.values()
    ]
    for chosen in itertools.product(*options):
        groups = dict(zip(asked.groups, chosen, strict=True))
        for count in range(1, len(cells) + 1):
            for guest in itertools.combinations(numbers, count):
                yield groups, guest


@pytest.fixture(scope="module")
def placement(tmp_path_factory: pytest.TempPathFactory) -> InProcessTransport:
    return InProcessTransport(ours(tmp_path_factory.mktemp("placement")))


def host_of(world: World, cells: list[Cell], mark: str) -> dict[str, Place]:
    """Make a host; return what each of its providers is."""
    world.provider("host", {}, "COMPUTE_NODE", mark)
    places: dict[str, Place] = {}
    for number, cell in enumerate(cells):
        inventory = {"VCPU": cell.vcpu, "MEMORY_MB": cell.memory_mb}
        traits = ["HW_NUMA_ROOT", *([RACK] if cell.rack else [])]
        name = f"cell{number}"
        own = {name: amount for name, amount in inventory.items() if amount}
        places[world.provider(name, own, *traits, parent="host")] = ("cell", number)
        if cell.vgpu:
            card = world.provider(f"card{number}", {"VGPU": cell.vgpu}, parent=name)
            places[card] = ("card", number)
    return places


@given(cells_of_a_host, asked_for())
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_guest_is_claimed_where_an_arrangement_fits_and_as_one_that_does(
    placement: InProcessTransport, tmp_path: Path, cells: list[Cell], asked: GuestDemand
) -> None:
    world = World(placement, tmp_path / "journal")
    world.call("PUT", f"/traits/{RACK}")
    mark = f"CUSTOM_T{uuid.uuid4().hex[:12].upper()}"
    places = host_of(world, cells, mark)
    possible = any(fits(asked, cells, *arranged) for arranged in arrangements(asked, cells))
    consumer = str(uuid.uuid4())
    try:
        world.scheduler().select_destinations(asked.spec(mark), [consumer])
    except NoValidHost:
        assert not possible
        return
    record: Any = world.call("GET", f"/allocations/{consumer}")
    held = {
        places[uuid]: allocation["resources"] for uuid, allocation in record["allocations"].items()
    }
    assert total(held, "VCPU") == asked.vcpu + sum(n == "VCPU" for n in asked.groups.values())
    assert total(held, "MEMORY_MB") == asked.memory_mb
    assert total(held, "VGPU") == sum(n == "VGPU" for n in asked.groups.values())
    assert any(
        fits(asked, cells, groups, guest) and accounts_for(asked, held, groups, guest)
        for groups, guest in arrangements(asked, cells)
    )


def total(held: dict[Place, dict[str, int]], name: str) -> int:
    return sum(amounts.get(name, 0) for amounts in held.values())


def accounts_for(
    asked: GuestDemand,
    held: dict[Place, dict[str, int]],
    groups: dict[str, Place],
    guest: tuple[int, ...],
) -> bool:
    """Whether what is held is what this arrangement takes, the guest something of each cell."""
    rest = {place: dict(amounts) for place, amounts in held.items()}
    for suffix, place in groups.items():
        amounts = rest.setdefault(place, {})
        amounts[asked.groups[suffix]] = amounts.get(asked.groups[suffix], 0) - 1
    of_guest = {place for place, amounts in rest.items() if any(amounts.values())}
    return of_guest == {("cell", cell) for cell in guest} and all(
        amount >= 0 for place in of_guest for amount in rest[place].values()
    )
