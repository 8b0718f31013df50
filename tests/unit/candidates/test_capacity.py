"""Counts of further claims on fleets as one would draw them, and their limits."""

from __future__ import annotations

import itertools
from contextlib import nullcontext

import pytest

from placement_server.candidates.capacity import Capacity, capacity
from placement_server.candidates.errors import OutOfTime, TooMuchMemory
from placement_server.candidates.evaluator import QueryEvaluator, SearchOptions
from placement_server.candidates.fragmentation import fragmentation
from placement_server.candidates.index.summaries import SummaryCache
from placement_server.candidates.limits import MIB, Account, Deadline, SearchEffort, SearchMemory
from placement_server.candidates.query import query as queries
from placement_server.candidates.query.parser import parse
from placement_server.candidates.search.search import Search

from .forest import SHARING, Inventory, Provider, writer_of

EVERYWHERE = queries.RequestGroup("")


def counted(world: list[Provider], text: str) -> Capacity:
    pairs = [
        (name, value)
        for name, _, value in (parameter.partition("=") for parameter in text.split("&"))
    ]
    return capacity(Search(parse(pairs, (1, 39), extensions=True), writer_of(world).index))


def bounds(world: list[Provider], text: str) -> tuple[int, int]:
    count = counted(world, text)
    return count.at_least, count.at_most


def host(name: str = "host", **stock: Inventory | int) -> Provider:
    return Provider(name, None, stock)


def gpus(*free: int) -> list[Provider]:
    return [
        host(),
        *(Provider(f"gpu{at}", "host", {"VGPU": amount}) for at, amount in enumerate(free)),
    ]


def test_what_is_reserved_overcommitted_and_used_counts() -> None:
    stock = Inventory(total=10, reserved=2, ratio=2.0, used=3)
    assert bounds([host(VCPU=stock)], "resources=VCPU:2") == (6, 6)


@pytest.mark.parametrize(
    ("stock", "fits"),
    [
        (Inventory(10, max_unit=3), 0),
        (Inventory(10, min_unit=5), 0),
        (Inventory(10, step_size=3), 0),
        (Inventory(10, max_unit=4, step_size=2), 2),
    ],
)
def test_units_that_an_inventory_does_not_give_out_do_not_fit(stock: Inventory, fits: int) -> None:
    assert bounds([host(VCPU=stock)], "resources=VCPU:4") == (fits, fits)


def test_two_groups_of_a_flat_host_are_added() -> None:
    two = "resources_1=VCPU:2&resources_2=VCPU:3&group_policy="
    assert bounds([host(VCPU=11)], f"{two}none") == (2, 2)
    assert bounds([host(VCPU=Inventory(11, max_unit=4))], f"{two}none") == (0, 0)
    assert bounds([host(VCPU=11)], f"{two}isolate") == (0, 0)


def test_isolated_groups_leave_more_the_more_evenly_they_are_spread() -> None:
    two = "resources_1=VGPU:1&resources_2=VGPU:1&group_policy=isolate"
    assert bounds(gpus(1, 1, 1, 1, 1), two) == (2, 2)
    assert bounds(gpus(5, 1), two) == (1, 1)
    # gpu0 with each of them; had gpu1 gone with gpu2 first, gpu0 would have no other any more.
    assert bounds(gpus(2, 1, 1), two) == (2, 2)
    assert bounds(gpus(2, 2, 2), two) == (3, 3)


@pytest.mark.parametrize("resources", ["MEMORY_MB:1", "DISK_GB:1,MEMORY_MB:1"])
def test_isolated_groups_do_not_fit_on_one_provider_whatever_another_group_takes(
    resources: str,
) -> None:
    world = [host(DISK_GB=12, MEMORY_MB=8)]
    query = f"resources={resources}&resources_1=DISK_GB:1&resources_2=MEMORY_MB:1&group_policy="
    assert bounds(world, f"{query}isolate") == (0, 0)
    assert bounds(world, f"{query}none") == (4, 4)


def test_more_placements_than_are_claimed_at_once_are_all_claimed() -> None:
    # The last of 12,870 ways to choose eight of sixteen GPUs has none in common with the first.
    eight = "&".join(f"resources_{number}=VGPU:1" for number in range(8))
    assert bounds(gpus(*[1] * 16), f"{eight}&group_policy=isolate") == (2, 2)


def test_a_cell_takes_what_its_own_gpus_allow() -> None:
    world = [
        host(),
        Provider("cell0", "host", {"VCPU": 4}),
        Provider("gpu0", "cell0", {"VGPU": 3}),
        Provider("cell1", "host", {"VCPU": 8}),
        Provider("gpu1", "cell1", {"VGPU": 1}),
    ]
    affine = "resources_C=VCPU:2&resources_G=VGPU:1&same_subtree=_C,_G"
    assert bounds(world, affine) == (3, 3)
    assert bounds(world, affine.partition("&same")[0]) == (4, 4)


def test_a_guest_of_two_cells_takes_a_gpu_beside_each() -> None:
    world = [host()]
    for cell, count in enumerate((5, 3)):
        world.append(Provider(f"cell{cell}", "host", {"VCPU": 8}))
        world.append(Provider(f"gpu{cell}", f"cell{cell}", {"VGPU": count}))
    two = (
        "resources_C=VCPU:2&resources_G=VGPU:1&same_subtree=_C,_G"
        "&resources_D=VCPU:2&resources_H=VGPU:1&same_subtree=_D,_H"
    )
    assert bounds(world, f"{two}&group_policy=isolate") == (3, 3)
    # Both may be on one cell: seven pairs fit, four and three.
    assert bounds(world, f"{two}&group_policy=none") == (3, 3)


def test_trees_that_share_a_pool_take_no_more_than_it_has() -> None:
    hosts = [Provider(f"host{at}", None, {"VCPU": 10}, aggregates=("rack",)) for at in range(3)]
    pool = Provider("pool", None, {"DISK_GB": 7}, (SHARING,), ("rack",))
    count = counted([*hosts, pool], "resources=VCPU:1,DISK_GB:1")
    assert (count.at_least, count.at_most) == (7, 7)
    assert (count.low.tolist(), count.limited_by) == ([7, 7, 7], {"DISK_GB": 3})


def test_the_class_that_runs_out_first_is_named_by_tree() -> None:
    world = [host("few", VCPU=2, MEMORY_MB=100), host("many", VCPU=100, MEMORY_MB=30)]
    count = counted(world, "resources=VCPU:1,MEMORY_MB:10")
    assert (count.at_least, count.limited_by) == (5, {"VCPU": 1, "MEMORY_MB": 1})
    assert [count.low.tolist(), count.high.tolist()] == [[3, 2], [3, 2]]


def test_a_count_gives_up_at_its_deadline() -> None:
    query = parse([("resources", "VCPU:1")], (1, 39))
    index = writer_of([host(VCPU=1)]).index
    clock = itertools.count().__next__
    with pytest.raises(OutOfTime):
        capacity(Search(query, index, deadline=Deadline(0.5, clock)))
    options, effort = SearchOptions(), SearchEffort()
    shapes = [{"VCPU": 1}] * 2
    for seconds, gives_up in ((0.0, True), (600.0, False)):
        limits = Deadline(seconds), Account(), effort
        evaluator = QueryEvaluator(index, options, SummaryCache(), *limits)
        with pytest.raises(OutOfTime) if gives_up else nullcontext():
            assert len(evaluator.fragmentation(shapes, EVERYWHERE)[1]) == 2


def test_a_count_gives_up_when_it_holds_too_much_memory() -> None:
    query = parse([("resources", "VCPU:1")], (1, 39))
    index = writer_of([host(f"host{at}", VCPU=1) for at in range(200)]).index
    with pytest.raises(TooMuchMemory):
        capacity(Search(query, index, account=Account(SearchMemory(1024, MIB))))
    account = Account(SearchMemory(MIB, 8 * MIB))
    assert capacity(Search(query, index, account=account)).at_least == 200


def test_many_groups_hold_little() -> None:
    groups = tuple(queries.RequestGroup(f"_{number}", (("VCPU", 1),)) for number in range(300))
    index = writer_of([host(VCPU=300)]).index
    query = queries.CandidateQuery(groups, group_policy="none")
    account = Account(SearchMemory(4 * MIB, 64 * MIB))
    assert capacity(Search(query, index, account=account)).at_least == 1


def test_shapes_of_many_classes_count_what_is_kept_of_each() -> None:
    classes = {f"CUSTOM_{number}": 1 for number in range(200)}
    index = writer_of([host(f"host{at}", **classes) for at in range(20)]).index
    memory = SearchMemory(64 * 1024, MIB)
    assert fragmentation([{"CUSTOM_1": 1}], EVERYWHERE, index, Account(memory))
    shapes = [{name: 1} for name in classes]
    index = writer_of([host(f"host{at}", **classes) for at in range(200)]).index
    with pytest.raises(TooMuchMemory):
        fragmentation(shapes, EVERYWHERE, index, Account(memory))


def test_a_group_that_takes_nothing_is_no_class_to_run_out_of() -> None:
    stock: dict[str, Inventory | int] = {"DISK_GB": 4, "VGPU": 3, "VCPU": 3}
    world = [
        Provider("sharing root"),
        Provider("other root"),
        Provider("member", "other root", aggregates=("agg",)),
        Provider("card", "sharing root", stock, traits=(SHARING,), aggregates=("agg",)),
    ]
    groups = (
        queries.RequestGroup("_1"),
        queries.RequestGroup("_2", (("VCPU", 1),)),
        queries.RequestGroup("", (("DISK_GB", 1), ("VCPU", 1))),
        queries.RequestGroup("_3", (("DISK_GB", 1), ("VGPU", 3))),
    )
    together = queries.SameSubtree(frozenset({"_1", "_2", "_3"}))
    query = queries.CandidateQuery(groups, group_policy="none", same_subtree=(together,))
    count = capacity(Search(query, writer_of(world).index))
    assert sum(count.limited_by.values()) == len(count.roots)
