"""A host with NUMA cells, filled claim by claim until nothing fits any more."""

from __future__ import annotations

import uuid

import pytest

from compute_agent.scheduler.errors import NoValidHost
from tests.functional.scheduler.moving import World
from tests.unit.scheduler.specs import spec

CELLS = 2
VCPUS_OF_A_CELL = 63
GUEST_VCPUS = 4
ONTO_CELLS_WITH_CARDS = {"resources_CARD:VGPU": "1", "same_subtree": "_CARD,_NUMA0"}


def filled(world: World, extra_specs: dict[str, str]) -> list[dict[str, int]]:
    """Claim until nothing fits; return the CPUs of each claim by cell."""
    mark = f"CUSTOM_T{uuid.uuid4().hex[:12].upper()}"
    world.provider("host", {}, "COMPUTE_NODE", mark)
    for index in range(CELLS):
        cell = f"cell{index}"
        world.provider(cell, {"VCPU": VCPUS_OF_A_CELL}, "HW_NUMA_ROOT", parent="host")
        world.provider(f"card{index}", {"VGPU": 100}, parent=cell)
    asked = spec({"root_required": mark, **extra_specs}, vcpus=GUEST_VCPUS, memory_mb=0, root_gb=0)
    scheduler = world.scheduler()
    claimed = []
    while True:
        consumer = str(uuid.uuid4())
        try:
            scheduler.select_destinations(asked, [consumer])
        except NoValidHost:
            return claimed
        held = world.held(consumer).items()
        claimed.append({name: taken["VCPU"] for name, taken in held if "VCPU" in taken})


def test_guests_whose_card_must_be_beside_them_fill_a_host_without_being_split(
    world: World,
) -> None:
    claimed = filled(world, ONTO_CELLS_WITH_CARDS)
    assert [len(by_cell) for by_cell in claimed] == [1] * (VCPUS_OF_A_CELL // GUEST_VCPUS * CELLS)


def test_guests_that_nothing_must_be_beside_use_up_what_single_cells_cannot_give(
    world: World,
) -> None:
    claimed = filled(world, {})
    assert [len(by_cell) for by_cell in claimed] == [1] * 30 + [2]


@pytest.mark.parametrize("policy", ["none", "isolate"])
def test_a_policy_alone_does_not_keep_a_guest_from_being_split(world: World, policy: str) -> None:
    claimed = filled(world, {"resources_CARD:VGPU": "1", "group_policy": policy})
    assert [len(by_cell) for by_cell in claimed] == [1] * 30 + [2]


NEAR = {"hw:pci_numa_affinity_policy": "required", "hw:numa_nodes": "2"}


def two_cells(world: World, *vcpus: int, cards: tuple[int, ...]) -> str:
    mark = f"CUSTOM_T{uuid.uuid4().hex[:12].upper()}"
    world.provider("host", {}, "COMPUTE_NODE", mark)
    for index, amount in enumerate(vcpus):
        cell = f"cell{index}"
        world.provider(cell, {"VCPU": amount}, "HW_NUMA_ROOT", parent="host")
        if index in cards:
            world.provider(f"card{index}", {"VGPU": 1}, parent=cell)
    return mark


@pytest.mark.parametrize(
    ("extra", "cards"),
    [
        # the card is near the cell on which only the second, smaller node fits
        ({"hw:numa_cpus.0": "0-2", "hw:numa_cpus.1": "3", "resources_A:VGPU": "1"}, (1,)),
        # one card near each node
        ({"resources_A:VGPU": "1", "resources_B:VGPU": "1"}, (0, 1)),
    ],
)
def test_a_device_is_near_whichever_node_of_the_guest_it_can_be_near(
    world: World, extra: dict[str, str], cards: tuple[int, ...]
) -> None:
    mark = two_cells(world, 3, 2, cards=cards)
    sizes = {} if "hw:numa_cpus.0" in extra else {"hw:numa_cpus.0": "0,1", "hw:numa_cpus.1": "2,3"}
    named = {"root_required": mark, "hw:numa_mem.0": "0", "hw:numa_mem.1": "0"}
    asked = spec({**named, **NEAR, **sizes, **extra}, vcpus=4, memory_mb=0, root_gb=0)
    consumer = str(uuid.uuid4())
    world.scheduler().select_destinations(asked, [consumer])
    assert {name for name in world.held(consumer) if "card" in name} == {f"card{i}" for i in cards}


def test_a_device_that_is_near_no_node_of_the_guest_is_not_taken(world: World) -> None:
    mark = two_cells(world, 4, 4, 1, cards=(2,))
    asked = spec(
        {"root_required": mark, **NEAR, "resources_A:VGPU": "1"}, vcpus=4, memory_mb=0, root_gb=0
    )
    with pytest.raises(NoValidHost):
        world.scheduler().select_destinations(asked, [str(uuid.uuid4())])
