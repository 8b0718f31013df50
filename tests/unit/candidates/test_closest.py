"""Explanations of queries and their closest changes: amounts, bounds, sentences, dead ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count
from urllib.parse import parse_qsl

import pytest

from placement_server.candidates.closest.closest import ClosestRelaxations, find_closest
from placement_server.candidates.closest.relaxations import Trials
from placement_server.candidates.explain import Explanation, explain
from placement_server.candidates.index.index import Index
from placement_server.candidates.limits import MIB, Account, Deadline, SearchMemory
from placement_server.candidates.query.parser import parse
from placement_server.candidates.query.query import CandidateQuery
from placement_server.candidates.search.course import Course
from placement_server.candidates.search.search import Search
from placement_server.store.allocations.room import Room, RoomOfProvider
from tests.unit.candidates.forest import Inventory, Provider, writer_of

MANY = 100


def asked(text: str) -> CandidateQuery:
    return parse(parse_qsl(text), (1, 39), extensions=True)


def closest_of(
    world: list[Provider], text: str, clock: Callable[[], float] = time.monotonic
) -> ClosestRelaxations:
    index = writer_of(world).index
    return find_closest(asked(text), Trials(index, Deadline(60.0, clock)), MANY)


def changes_of(world: list[Provider], text: str) -> dict[str, int]:
    """The number of trees by the words of each set."""
    closest = closest_of(world, text)
    assert closest.complete
    return {
        " and ".join(
            relaxation.words(to) for relaxation, to in relaxation_set.relaxations
        ): relaxation_set.trees
        for relaxation_set in closest.sets
    }


def test_an_amount_is_lowered_to_the_largest_that_is_free() -> None:
    world = [Provider(f"host{n}", None, {"VCPU": Inventory(16, used=n)}) for n in (4, 6, 6)]
    assert changes_of(world[:1], "resources=VCPU:16") == {"with VCPU:12 instead of 16": 1}
    assert changes_of(world[1:2], "resources=VCPU:16") == {"with VCPU:10 instead of 16": 1}


@pytest.mark.parametrize(
    ("inventory", "to"),
    [
        (Inventory(11, step_size=4), 8),
        (Inventory(30, max_unit=7, step_size=3), 6),
        (Inventory(15, min_unit=10), 15),
        (Inventory(11, min_unit=3, step_size=5), 10),
    ],
)
def test_a_lowered_amount_is_one_that_the_inventory_gives(inventory: Inventory, to: int) -> None:
    world = [Provider("host", None, {"VCPU": inventory})]
    assert changes_of(world, "resources=VCPU:17") == {f"with VCPU:{to} instead of 17": 1}


@pytest.mark.parametrize("amount", [2**31, 2**32, 2**63 - 1, pytest.param(10**400, id="10**400")])
def test_amounts_beyond_those_of_any_inventory_are_lowered_as_others_are(amount: int) -> None:
    world = [
        Provider("host", None, {"VCPU": 8}),
        Provider("odd", None, {"VCPU": Inventory(6, step_size=3)}),
    ]
    index = writer_of(world).index
    closest = find_closest(asked(f"resources=VCPU:{amount}"), Trials(index, Deadline(60.0)), MANY)
    (lowered,) = closest.sets
    assert lowered.relaxations[0][1] == 8
    assert [index.columns.uuid[shortage.slot] for shortage in closest.shortages] == ["host", "odd"]


def test_inventories_with_other_units_do_not_hide_each_other() -> None:
    coarse = Provider("coarse", None, {"VCPU": Inventory(12, min_unit=10)})
    fine = Provider("fine", None, {"VCPU": 5})
    assert changes_of([fine, coarse], "resources=VCPU:20") == {"with VCPU:12 instead of 20": 1}
    steps = Provider("steps", None, {"VCPU": Inventory(19, step_size=8)})
    assert changes_of([fine, coarse, steps], "resources=VCPU:20") == {
        "with VCPU:16 instead of 20": 1
    }


def test_an_amount_that_nothing_gives_less_of_is_not_lowered() -> None:
    world = [Provider("host", None, {"VCPU": Inventory(6, min_unit=4), "DISK_GB": 4})]
    assert changes_of(world, "resources=VCPU:4,DISK_GB:8") == {"with DISK_GB:4 instead of 8": 1}
    assert changes_of(world, "resources=VCPU:3") == {}


def test_what_other_groups_take_from_the_same_inventory_is_not_free() -> None:
    world = [Provider("host", None, {"VCPU": 12})]
    query = "resources1=VCPU:8&resources2=VCPU:7&group_policy=none"
    assert changes_of(world, query) == {
        "with VCPU:5 instead of 8 in group '1'": 1,
        "with VCPU:4 instead of 7 in group '2'": 1,
    }


def test_of_two_amounts_the_same_share_is_kept_where_that_is_possible() -> None:
    world = [
        Provider("no_memory", None, {"VCPU": 19, "MEMORY_MB": 100}),
        Provider("even", None, {"VCPU": 12, "MEMORY_MB": 6000}),
        Provider("no_cpu", None, {"VCPU": 1, "MEMORY_MB": 9900}),
    ]
    assert changes_of(world, "resources=VCPU:20,MEMORY_MB:10000") == {
        "with VCPU:12 instead of 20 and with MEMORY_MB:6000 instead of 10000": 1
    }


def test_sets_that_open_more_trees_come_first_and_single_changes_before_pairs() -> None:
    world = [
        Provider("fast1", None, {"VCPU": 4}, ("CUSTOM_FAST",)),
        Provider("slow1", None, {"VCPU": 16}),
        Provider("slow2", None, {"VCPU": 16}),
        Provider("bad", None, {"VCPU": 2, "VGPU": 1}, ("CUSTOM_BAD",)),
    ]
    closest = changes_of(world, "resources=VCPU:8&required=CUSTOM_FAST,!CUSTOM_BAD")
    assert closest == {"without required CUSTOM_FAST": 2, "with VCPU:4 instead of 8": 1}
    assert next(iter(closest)) == "without required CUSTOM_FAST"


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("resources=VCPU:1&required=!CUSTOM_BAD", "with CUSTOM_BAD allowed"),
        ("resources=VCPU:1&in_tree=UUID2", "without in_tree UUID2"),
        ("resources=VCPU:1&member_of=UUID1", "without member_of UUID1"),
        ("resources=VCPU:1&member_of=!UUID3", "with aggregate UUID3 allowed"),
        ("resources=VCPU:1&root_required=CUSTOM_A", "without root_required=CUSTOM_A"),
        ("resources=VCPU:1&root_member_of=UUID1", "without root_member_of UUID1"),
        ("resources=VCPU:1&required=in:CUSTOM_A,CUSTOM_B", "without required in:CUSTOM_A,CUSTOM_B"),
        (
            "resources_1=VCPU:1&resources_2=VCPU:1&group_policy=isolate",
            "without group_policy=isolate",
        ),
        ("resources_1=VCPU:1&resources_2=VCPU:1&isolate=_1", "without isolate=_1"),
        ("resources_1=VCPU:1&resources_2=VGPU:1&same_subtree=_1,_2", "without same_subtree=_1,_2"),
    ],
)
def test_every_condition_can_be_the_one_in_the_way(query: str, words: str) -> None:
    uuids = {f"UUID{n}": f"{n:08}-0000-4000-8000-000000000000" for n in (1, 2, 3)}
    host, other, zone = uuids["UUID1"], uuids["UUID2"], uuids["UUID3"]
    world = [
        Provider("host", None, {}, (), (zone,)),
        Provider("cpu", "host", {"VCPU": 4}, ("CUSTOM_BAD",), (zone,)),
        Provider("gpu", "host", {"VGPU": 4}, ("CUSTOM_BAD",)),
        Provider(other, None, {"DISK_GB": 1}, ("CUSTOM_A", "CUSTOM_B"), (host,)),
    ]
    for name, uuid in uuids.items():
        query, words = query.replace(name, uuid), words.replace(name, uuid)
    assert changes_of(world, query) == {words: 1}


def full_hosts(number: int) -> list[Provider]:
    return [Provider(f"host{n:05}", None, {"VCPU": 8}) for n in range(number)]


def test_past_the_deadline_what_was_found_is_reported_as_incomplete() -> None:
    world = [Provider("host", None, {"VCPU": 4, "VGPU": 1})]
    query = "resources=VCPU:8&resources1=VGPU:1&required1=CUSTOM_A&group_policy=none"
    world.append(Provider("names", None, {}, ("CUSTOM_A",)))
    trials = [closest_of(world, query, clock=clock(at)) for at in range(1, 200)]
    complete = trials[-1]
    assert complete.complete
    assert complete.sets
    for found in trials:
        assert found.complete == (len(found.sets) == len(complete.sets) and found.complete)
        assert set(found.sets) <= set(complete.sets)
    assert not trials[0].complete
    assert {len(found.sets) for found in trials} == {0, len(complete.sets)}


def clock(ends_after: int) -> Callable[[], float]:
    """A clock that is looked at so many times before the deadline has passed."""
    looks = count()
    return lambda: 0.0 if next(looks) < ends_after else 1e9


def test_past_the_bound_of_memory_what_was_found_is_reported_as_incomplete() -> None:
    index = writer_of(full_hosts(4000)).index
    memory = SearchMemory(MIB // 2, 64 * MIB)
    account = Account(memory)
    closest = find_closest(
        asked("resources=VCPU:9"), Trials(index, Deadline(60.0), account=account), MANY
    )
    assert (closest.complete, closest.sets) == (False, [])
    account.close()
    assert memory.granted_size == 0


def test_the_ten_closest_providers_are_short_and_the_rest_are_left_out() -> None:
    world = [
        Provider(f"host{n}", None, {"VCPU": Inventory(40, used=20 + (7 * n) % 20)})
        for n in range(20)
    ]
    world.append(Provider("busy", None, {"VCPU": Inventory(40, used=1)}, ("CUSTOM_BAD",)))
    index = writer_of(world).index
    query = asked("resources=VCPU:30&required=!CUSTOM_BAD")
    shortages = find_closest(query, Trials(index, Deadline(60.0)), MANY).shortages
    used = [20 + (7 * int(index.columns.uuid[shortage.slot][4:])) % 20 for shortage in shortages]
    assert used == list(range(20, 30))


def test_where_one_provider_of_a_tree_has_enough_the_others_are_not_short() -> None:
    world = [
        Provider("host", None, {"VCPU": 2}),
        Provider("gpu0", "host", {"VGPU": 1}),
        Provider("gpu1", "host", {"VGPU": 4}),
    ]
    index = writer_of(world).index
    query = asked("resources=VCPU:4&resources1=VGPU:2&group_policy=none")
    shortages = find_closest(query, Trials(index, Deadline(60.0)), MANY).shortages
    assert [
        (index.columns.uuid[shortage.slot], shortage.resource_class) for shortage in shortages
    ] == [("host", "VCPU")]


def test_of_several_groups_that_lack_one_class_the_one_that_asks_for_most_is_named() -> None:
    index = writer_of([Provider("host", None, {"VCPU": 4})]).index
    query = asked("resources1=VCPU:3&resources2=VCPU:9&resources3=VCPU:6&group_policy=none")
    (short,) = find_closest(query, Trials(index, Deadline(60.0)), MANY).shortages
    assert (short.group, short.requested_amount) == ("2", 9)


def test_a_pool_that_is_short_is_named_with_the_trees_that_it_serves() -> None:
    sharing = ("MISC_SHARES_VIA_AGGREGATE",)
    world = [
        Provider("host", None, {"VCPU": 4}, (), ("agg",)),
        Provider("pool", None, {"DISK_GB": Inventory(100, used=95)}, sharing, ("agg",)),
        Provider("alone", None, {"DISK_GB": 9}, sharing, ("other",)),
    ]
    index = writer_of(world).index
    closest = find_closest(
        asked("resources=VCPU:1,DISK_GB:10"), Trials(index, Deadline(60.0)), MANY
    )
    assert [index.columns.uuid[shortage.slot] for shortage in closest.shortages] == ["pool"]
    (lowered,) = closest.sets
    assert (lowered.relaxations[0][1], lowered.trees) == (5, 1)


def reported(index: Index, query: str, rooms: dict[str, RoomOfProvider]) -> ClosestRelaxations:
    closest = find_closest(asked(query), Trials(index, Deadline(60.0)), MANY)
    closest.read_rooms(lambda _providers, _classes: rooms)
    return closest


def test_a_provider_that_has_the_room_by_now_or_is_gone_is_not_reported() -> None:
    index = writer_of(full_hosts(3)).index
    vcpu = index.names.class_ids["VCPU"]
    rooms = {
        "host00000": RoomOfProvider("first", {vcpu: Room(16, 0, 1, 16, 1, 0)}),
        "host00001": RoomOfProvider("second", {vcpu: Room(8, 1, 1, 8, 1, 1)}),
    }
    closest = reported(index, "resources=VCPU:9", rooms)
    assert [(closest.name(short.slot), room.free) for short, room in closest.short()] == [
        ("second", 7)
    ]
    assert list(closest.lines()) == [
        "3 trees would fit with VCPU:8 instead of 9, for example first.",
        "second has 7 of 8 VCPU free, 1 consumer holds some; 9 asked for.",
    ]


def test_a_group_for_which_nothing_is_left_is_reported() -> None:
    world = [Provider("host", None, {"VCPU": 10}), Provider("cell", "host", {"VCPU": 5})]
    query, index = (
        asked("resources_1=VCPU:5&resources_2=VCPU:5&resources_3=VCPU:5&isolate=_1"),
        writer_of(world).index,
    )
    course = Course(index, query)
    assert list(Search(query, index, course=course).candidates())
    assert course.dead_ends == {"_2": 1}


WORLD = [
    Provider("small", None, {"VCPU": 2}, ("CUSTOM_FAST",)),
    Provider("large", None, {"VCPU": 8}),
    Provider("gpus", None, {}, ("CUSTOM_FAST",)),
    Provider("gpu0", "gpus", {"VGPU": 1}),
    Provider("gpu1", "gpus", {"VGPU": 1}),
]


def told(query: str) -> Explanation:
    return explain(asked(query), Trials(writer_of(WORLD).index, Deadline(60.0)))


def test_the_filter_that_rejects_the_last_trees_is_named() -> None:
    explanation = told("resources=VCPU:4&required=CUSTOM_FAST")
    assert explanation.lines() == [
        "3 tree(s) of providers.",
        "resources VCPU:4: leaves 1 provider(s).",
        "resources VCPU:4: rejects 2 tree(s).",
        "required CUSTOM_FAST: rejects 1 tree(s).",
        "0 tree(s) passed all filters.",
    ]


def test_trees_without_a_combination_are_counted_by_reason() -> None:
    query = "resources1=VGPU:1&resources2=VGPU:1&resources3=VGPU:1&group_policy=isolate"
    explanation = told(query)
    assert explanation.trees_tried == 1
    assert dict(explanation.combinations_failed) == {"too few distinct providers": 1}
    query = query.replace("isolate", "none")
    assert dict(told(query).combinations_failed) == {"capacity in sum": 1}


def test_dead_providers_are_not_counted() -> None:
    writer = writer_of(WORLD)
    tree = next(iter(writer.index.trees()))
    writer.apply({1: tree})
    explanation = explain(asked("resources1=VCPU:1"), Trials(writer.index, Deadline(60.0)))
    assert explanation.steps[0]["providers_left"] == 2
