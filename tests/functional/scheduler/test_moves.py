"""Moves of instances in a real placement: what the consumers hold after every step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import to_builtins

from compute_agent.placement.transports.transport import Transport
from compute_agent.scheduler.errors import MoveRefused, NoValidHost
from compute_agent.scheduler.moves.move import Move, MoveKind, move_of
from compute_agent.scheduler.moves.mover import MoveStart
from tests.fixtures.allocations import new_uuid
from tests.functional.scheduler.guests import (
    COLD,
    EVACUATE,
    KINDS,
    LIVE,
    Flat,
    Guest,
    NestedOnPool,
    Place,
    states,
    without,
)
from tests.functional.scheduler.moving import World


@pytest.mark.parametrize("kind", [COLD, LIVE])
def test_while_a_guest_moves_the_migration_holds_the_source_and_a_pool_counts_once(
    guest: Guest, kind: MoveKind
) -> None:
    place = guest.place
    begun = guest.begin(kind)
    assert guest.state == (place.on("b"), without(place.on("a"), place.shared))
    assert begun.move.destination_root == place.hosts["b"]
    assert begun.selections[0].compute_node_uuid == place.hosts["b"]
    types = guest.world.type_of(guest.instance), guest.world.type_of(guest.migration)
    assert types == ("INSTANCE", "MIGRATION")
    assert guest.open_lines() == 0


@pytest.mark.parametrize("kind", [COLD, LIVE])
def test_a_confirmed_move_leaves_the_destination_alone(guest: Guest, kind: MoveKind) -> None:
    begun = guest.begin(kind)
    mover, _ = guest.world.mover()
    mover.finish(begun.move)
    assert guest.state == (guest.place.on("b"), {})
    mover.finish(begun.move)
    assert guest.state == (guest.place.on("b"), {})


@pytest.mark.parametrize("kind", [COLD, LIVE])
def test_a_reverted_move_leaves_the_source_as_it_was(guest: Guest, kind: MoveKind) -> None:
    begun = guest.begin(kind)
    mover, _ = guest.world.mover()
    mover.revert(begun.move)
    assert guest.state == (guest.place.on("a"), {})
    assert guest.world.type_of(guest.instance) == "INSTANCE"
    mover.revert(begun.move)
    assert guest.state == (guest.place.on("a"), {})


def test_an_evacuated_guest_holds_both_places_until_its_source_is_back(guest: Guest) -> None:
    place = guest.place
    begun = guest.begin(EVACUATE)
    both = {**place.on("a"), **place.on("b")}
    assert guest.state == (both, {})
    mover, _ = guest.world.mover()
    mover.finish(begun.move)
    assert guest.state == (both, {})
    mover.source_returned(guest.instance, place.hosts["a"])
    assert guest.state == (place.on("b"), {})
    mover.source_returned(guest.instance, place.hosts["a"])
    assert guest.state == (place.on("b"), {})


def test_an_evacuation_that_failed_is_reverted(guest: Guest) -> None:
    begun = guest.begin(EVACUATE)
    guest.world.mover()[0].revert(begun.move)
    assert guest.state == (guest.place.on("a"), {})


def test_a_source_that_returns_never_takes_the_only_place_of_a_guest(guest: Guest) -> None:
    with pytest.raises(MoveRefused, match="on no other host"):
        guest.world.mover()[0].source_returned(guest.instance, guest.place.hosts["a"])
    assert guest.state == (guest.place.on("a"), {})
    assert guest.open_lines() == 0


@pytest.mark.parametrize("kind", list(MoveKind))
def test_without_a_destination_a_guest_stays_as_it_was(guest: Guest, kind: MoveKind) -> None:
    guest.place.fill("b")
    before = guest.world.held(guest.instance)
    with pytest.raises(NoValidHost):
        guest.begin(kind)
    assert guest.world.held(guest.instance) == before
    assert guest.world.held(guest.migration) == {}
    assert guest.open_lines() == 0


def test_a_cold_move_to_the_same_host_counts_both(world: World) -> None:
    place = Flat(world)
    guest = Guest(place)
    place.world.call("DELETE", f"/resource_providers/{place.hosts['b']}")
    del place.world.names[place.hosts["b"]]
    begun = world.mover()[0].begin(COLD, place.asked(), guest.instance, guest.migration)
    assert guest.state == (place.on("a"), place.on("a"))
    world.mover()[0].revert(begun.move)
    assert guest.state == (place.on("a"), {})


@pytest.mark.parametrize(("room", "disk", "rest"), [(7, 7, 0), (5, 2, 3), (20, 7, 0)])
def test_a_resize_on_a_pool_holds_the_larger_disk_until_it_is_decided(
    world: World, room: int, disk: int, rest: int
) -> None:
    place = NestedOnPool(world, room)
    guest = Guest(place)
    mover, _ = world.mover()
    begun = mover.begin(LIVE, place.asked(root_gb=disk), guest.instance, guest.migration)
    held, kept = guest.state
    assert held["pool"] == {"DISK_GB": disk}
    assert kept.get("pool", {}) == ({"DISK_GB": rest} if rest else {})
    mover.revert(begun.move)
    assert guest.state == (place.on("a"), {})


def test_a_resize_that_the_pool_has_no_room_for_is_refused(world: World) -> None:
    place = NestedOnPool(world, 7)
    guest = Guest(place)
    with pytest.raises(NoValidHost):
        world.mover()[0].begin(LIVE, place.asked(root_gb=8), guest.instance, guest.migration)
    assert guest.state == (place.on("a"), {})


def test_a_named_destination_shares_the_full_pool_too(world: World) -> None:
    place = NestedOnPool(world)
    guest = Guest(place)
    asked = place.asked(force_hosts=place.named("b"))
    world.mover()[0].begin(LIVE, asked, guest.instance, guest.migration)
    assert guest.state == (place.on("b"), {"a0": {"VCPU": 2}})


def test_a_host_that_does_not_share_the_pool_is_no_destination_without_disk(world: World) -> None:
    place = NestedOnPool(world)
    guest = Guest(place)
    world.provider("c", {}, place.trait)
    world.provider("c0", {"VCPU": 4}, "HW_NUMA_ROOT", parent="c")
    place.fill("b")
    with pytest.raises(NoValidHost):
        guest.begin(LIVE)
    assert world.held(guest.migration) == {}


def test_a_reverted_move_returns_the_mappings_that_the_caller_knew(world: World) -> None:
    place = Flat(world)
    guest = Guest(place)
    port, root = new_uuid(), place.hosts["a"]
    mover, _ = world.mover()
    begun = mover.begin(
        LIVE, place.asked(), guest.instance, guest.migration, mappings={port: [root]}
    )
    kept = move_of(to_builtins(begun.move))
    assert kept == begun.move
    assert mover.revert(kept) == {port: (root,)}


def test_a_move_is_refused_whose_consumers_hold_something_else(world: World) -> None:
    place = Flat(world)
    guest = Guest(place)
    mover, _ = world.mover()
    with pytest.raises(MoveRefused, match="holds nothing that could be moved"):
        mover.begin(LIVE, place.asked(), new_uuid(), guest.migration)
    with pytest.raises(MoveRefused, match="needs the uuid of its migration"):
        mover.begin(LIVE, place.asked(), guest.instance)
    with pytest.raises(MoveRefused, match="an evacuation has none"):
        mover.begin(EVACUATE, place.asked(), guest.instance, guest.migration)
    other = new_uuid()
    place.claimed(other, "b")
    with pytest.raises(MoveRefused, match=f"migration {other} holds allocations already"):
        mover.begin(LIVE, place.asked(), guest.instance, other)
    begun = guest.begin(EVACUATE)
    with pytest.raises(MoveRefused, match="on 2 hosts"):
        guest.begin(EVACUATE)
    mover.source_returned(guest.instance, place.hosts["a"])
    with pytest.raises(MoveRefused, match="does not hold its source"):
        mover.revert(begun.move)


def test_a_confirmed_move_cannot_be_reverted_nor_an_empty_one_confirmed(world: World) -> None:
    place = Flat(world)
    guest = Guest(place)
    mover, _ = world.mover()
    begun = guest.begin(LIVE)
    mover.finish(begun.move)
    with pytest.raises(MoveRefused, match="the move was confirmed"):
        mover.revert(begun.move)
    assert guest.state == (place.on("b"), {})
    move = Move(LIVE, new_uuid(), new_uuid(), place.hosts["a"], {}, {}, "", {}, {}, "", "")
    begun = MoveStart(move, ())
    with pytest.raises(MoveRefused, match="holds nothing at its destination"):
        mover.finish(begun.move)
    assert guest.open_lines() == 0


@pytest.mark.parametrize("kind_of_place", KINDS)
def test_the_published_placement_counts_moves_just_so(
    published: Transport, tmp_path: Path, kind_of_place: Callable[[World], Place]
) -> None:
    world = World(published, tmp_path / "journal")
    guest = Guest(kind_of_place(world))
    mover, _ = world.mover()
    for kind in (LIVE, COLD):
        source, moving, _ = states(guest, kind)
        begun = guest.begin(kind)
        assert guest.state == moving
        mover.revert(begun.move)
        assert guest.state == source
    _, _, moved = states(guest, LIVE)
    mover.finish(guest.begin(LIVE).move)
    assert guest.state == moved

    other = Guest(kind_of_place(World(published, tmp_path / "journal")))
    source, moving, moved = states(other, EVACUATE)
    begun = other.begin(EVACUATE)
    assert other.state == moving
    mover.revert(begun.move)
    assert other.state == source
    other.begin(EVACUATE)
    mover.source_returned(other.instance, other.place.hosts["a"])
    assert other.state == moved
