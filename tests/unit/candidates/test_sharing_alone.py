"""Requests served by sharing providers alone: found once, from however many trees."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from urllib.parse import parse_qsl

import pytest

from placement_server.candidates.index.index import Index
from placement_server.candidates.limits import Deadline
from placement_server.candidates.query.parser import parse
from placement_server.candidates.query.query import plan
from placement_server.candidates.search.problem import Problem
from placement_server.candidates.search.search import Search, SearchLimits
from placement_server.candidates.search.solver import Solver
from tests.property.oracle import answer
from tests.unit.candidates.forest import (
    SHARING,
    Provider,
    amounts,
    ask,
    mapping,
    results,
    trees_of,
    writer_of,
)


def hosts(count: int, *aggregates: str) -> list[Provider]:
    return [
        Provider(f"host-{'-'.join(aggregates)}-{number}", None, {"VCPU": 8}, (), aggregates)
        for number in range(count)
    ]


def pool(name: str, *aggregates: str, total: int = 1000) -> Provider:
    return Provider(name, None, {"DISK_GB": total}, (SHARING,), aggregates)


def pools(count: int, *aggregates: str) -> list[Provider]:
    return [pool(f"pool{number}", *aggregates) for number in range(count)]


def disks(groups: int, policy: str = "none") -> str:
    resources = "&".join(f"resources_{number}=DISK_GB:1" for number in range(groups))
    return f"{resources}&group_policy={policy}"


def test_pools_of_many_hosts_are_generated_once() -> None:
    world = hosts(50, "agg") + pools(6, "agg")
    # Had each anchor generated the six, the search would have held more than it may.
    body = ask(world, "resources=DISK_GB:1", most=6)
    assert amounts(body) == [f"pool{number}(DISK_GB:1)" for number in range(6)]


@pytest.mark.parametrize("policy", ["none", "isolate"])
def test_several_groups_on_pools_of_many_hosts_are_generated_once(policy: str) -> None:
    world = hosts(20, "agg") + pools(4, "agg")
    every = 4**3 if policy == "none" else 4 * 3 * 2
    assert len(ask(world, disks(3, policy), most=every)["allocation_requests"]) == every


def test_combinations_that_several_sets_of_links_allow_are_generated_once() -> None:
    """Every host reaches another three of the five pools; no two of all five miss each other."""
    world = [
        *(pool(f"pool{number}", f"agg{number}") for number in range(5)),
        *(
            Provider(
                f"host{at}", None, {"VCPU": 8}, (), tuple(f"agg{provider}" for provider in linked)
            )
            for at, linked in enumerate(itertools.combinations(range(5), 3))
        ),
    ]
    query = disks(2)
    body = ask(world, query, most=25)
    assert len(results(body)) == 25
    assert set(results(body)) == answer(world, parse(parse_qsl(query), (1, 39)), nested=True)


def test_pools_that_no_tree_links_are_not_combined() -> None:
    world = [
        *hosts(3, "agg1"), *hosts(3, "agg2"), pool("pool1", "agg1"), pool("pool2", "agg2"),
    ]  # fmt: skip
    assert mapping(ask(world, disks(2)), "_0", "_1") == {("pool1", "pool1"), ("pool2", "pool2")}


def test_what_is_asked_of_roots_is_asked_of_a_tree_that_links_them() -> None:
    world = [
        Provider("host1", None, {"VCPU": 8}, ("CUSTOM_A",), ("agg1",)),
        Provider("host2", None, {"VCPU": 8}, (), ("agg1", "agg2")),
        pool("pool1", "agg1"),
        pool("pool2", "agg2"),
    ]
    assert amounts(ask(world, "resources=DISK_GB:1&root_required=CUSTOM_A")) == ["pool1(DISK_GB:1)"]
    apart = ask(world, disks(2, "isolate") + "&root_required=!CUSTOM_A")
    assert mapping(apart, "_0", "_1") == {("pool1", "pool2"), ("pool2", "pool1")}


def test_a_limit_is_met_with_one_candidate_of_each_pool_before_a_second() -> None:
    world = hosts(5, "agg") + pools(4, "agg")
    body = ask(world, disks(2) + "&limit=4")
    assert mapping(body, "_0", "_1") == {(f"pool{number}",) * 2 for number in range(4)}


def order(index: Index, query: str) -> list[tuple[str, ...]]:
    """The providers of each candidate, in the order of the candidates."""
    search = Search(parse(parse_qsl(query), (1, 39)), index)
    return [
        tuple(index.columns.uuid[slot] for slot in candidate.slots())
        for candidate in search.candidates()
    ]


@pytest.mark.parametrize("query", [disks(2), "resources=VCPU:1,DISK_GB:1"])
def test_the_order_goes_by_provider_ids_and_not_by_when_a_pool_last_changed(query: str) -> None:
    world = hosts(2, "agg") + pools(3, "agg")
    untouched, touched = writer_of(world), writer_of(world)
    touched.apply({3: trees_of(world)[2]})
    assert order(touched.index, query) == order(untouched.index, query)


def test_each_pool_gives_a_candidate_before_one_gives_a_second() -> None:
    index = writer_of(hosts(2, "agg") + pools(3, "agg")).index
    assert order(index, disks(2))[:3] == [(f"pool{number}",) * 2 for number in range(3)]


def test_trees_with_a_provider_of_their_own_keep_their_place_before_later_pools() -> None:
    local = Provider("local", None, {"DISK_GB": 10}, (), ("agg",))
    late = Provider("late", None, {"DISK_GB": 10}, (), ("agg",))
    world = [local, *pools(2, "agg"), late]
    body = ask(world, "resources=DISK_GB:1")
    order = [
        next(iter(allocation_request["allocations"]))
        for allocation_request in body["allocation_requests"]
    ]
    assert order == ["local", "pool0", "pool1", "late"]


def test_a_random_sample_is_fair_between_pools() -> None:
    index = writer_of(hosts(30, "agg") + pools(4, "agg")).index
    query = parse(parse_qsl(disks(2)), (1, 39))
    shuffle, first = random.Random(5), Counter[str]()
    for _ in range(800):
        search = Search(query, index, SearchLimits(limit=1), shuffle=shuffle)
        first.update(index.columns.uuid[candidate.slots()[0]] for candidate in search.candidates())
    assert len(first) == 4
    assert max(first.values()) < 2 * min(first.values())


def ticks_of(world: list[Provider], query: str) -> tuple[int, int]:
    """How many candidates there are, and how often the search looked at the clock."""
    ticks = itertools.count()
    search = Search(
        parse(parse_qsl(query), (1, 39)),
        writer_of(world).index,
        deadline=Deadline(clock=lambda: float(next(ticks))),
    )
    return len(list(search.candidates())), next(ticks)


@pytest.mark.parametrize("shuffle", [None, random.Random(3)])
def test_what_a_tree_gives_is_found_without_trying_what_pools_serve_alone(
    shuffle: random.Random | None,
) -> None:
    """Five alike groups on a host and four of 20 pools, and never on pools alone."""
    query = parse(parse_qsl(disks(5, "isolate")), (1, 39))
    ticks = itertools.count()
    own = [1 << position for position in range(21)]
    every = (1 << 21) - 1
    problem = Problem(
        parents=(-1,),
        ancestors=tuple(own),
        descendants=tuple(own),
        eligible=(every,) * 5,
        covers=(0,) * 21,
        terms=0,
        caps=(),
        trees=tuple(own),
        own=1,
        needed_mask=1,
    )
    solver = Solver(plan(query, {"DISK_GB": 0}), problem, lambda: next(ticks), shuffle)
    found = list(solver.solutions())
    assert len(found) == math.comb(20, 4)
    assert all(0 in item for item in found)
    # Few steps end without a placement; pools alone would be as many steps again, and more.
    assert next(ticks) * 128 < 2 * len(found)


def test_sets_of_links_that_are_too_small_are_not_tried() -> None:
    """Twelve hosts reach twelve pools each: thirteen groups that share none fit nowhere."""
    world = [pool(f"pool{number}", f"agg{number}") for number in range(24)]
    for at in range(12):
        linked = tuple(f"agg{(at + number) % 24}" for number in range(12))
        world.append(Provider(f"host{at}", None, {"VCPU": 8}, (), linked))
    count, ticks = ticks_of(world, disks(13, "isolate"))
    assert count == 0
    assert ticks < 20


def test_a_shared_provider_is_no_twin_of_one_that_is_its_trees_alone() -> None:
    """With the shared drive nothing is the cage's to give; with the other one there is."""
    world = [
        Provider("cage", None, {"VGPU": 1}),
        Provider("shared", "cage", {"DISK_GB": 1}, (SHARING,), ("agg",)),
        Provider("drive", "cage", {"DISK_GB": 1}, (), ("agg",)),
        Provider("gpus", None, {"VGPU": 1}, (SHARING,), ("agg",)),
    ]
    query = parse(
        parse_qsl("resources_D=DISK_GB:1&resources_G=VGPU:1&same_subtree=_G,!_D"),
        (1, 39),
        extensions=True,
    )
    found = set(results(ask(world, query)))
    assert found == answer(world, query, nested=True)
    assert len(found) == 2


def test_a_pool_inside_a_tree_may_serve_other_trees_alone() -> None:
    world = [
        Provider("rack", None, {}),
        Provider("shelf", "rack", {"DISK_GB": 10}, (SHARING,), ("agg",)),
        Provider("drive", "rack", {"DISK_GB": 10}),
        *hosts(4, "agg"),
    ]
    query = disks(2)
    expected = answer(world, parse(parse_qsl(query), (1, 39)), nested=True)
    assert len(expected) == 4
    found = results(ask(world, query, most=4))
    assert len(found) == 4
    assert set(found) == expected
