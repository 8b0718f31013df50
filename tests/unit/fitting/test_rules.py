"""The rules of the planner: what a guest gets, and what it never gets."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from compute_agent.fitting.guest import Guest, Node, Wish
from compute_agent.fitting.host import Cell
from compute_agent.fitting.plan import Plan, Refusal
from tests.unit.fitting.hosts import (
    answer,
    cell,
    cells_of,
    cpus_of,
    device,
    devices_of,
    near,
    one,
    pinned,
    why_not,
)

HUGE = frozenset((2048, 1048576))

# -- cells --------------------------------------------------------------------------------------


def test_unlike_nodes_on_as_many_cells_are_matched_and_not_tried_out():
    cells = [cell(number, memory_mib=100 * (64 - number)) for number in range(64)]
    nodes = [Node(1, memory_mib=100 * number) for number in range(1, 65)]
    assert cells_of(answer(cells, Guest(tuple(nodes)))) == list(range(63, -1, -1))
    too_large = [*nodes[:-2], nodes[-1], nodes[-1]]
    assert "a cell of its own" in why_not(answer(cells, Guest(tuple(too_large))))


@pytest.mark.parametrize(
    ("whole", "parts"),
    [
        (pinned(2), [(1, 0, 2, 0)]),
        (pinned(3), [(0, 0, 1, 0), (1, 0, 2, 0)]),
        (Node(1, memory_mib=1500), [(0, 1, 0, 1000), (1, 0, 0, 500)]),
        (Node(6, memory_mib=10), [(0, 4, 0, 10), (1, 2, 0, 0)]),
    ],
    ids=["on one", "CPUs of two", "memory of a cell that gives no CPU", "CPUs without memory"],
)
def test_a_guest_that_names_no_nodes_lies_on_the_fewest_cells(whole, parts):
    cells = [cell(0, "0-"), cell(1, "01"), cell(2)]
    result = answer(cells, Guest((whole,), names_nodes=False))
    assert isinstance(result, Plan)
    assert [(p.cell, p.vcpus, p.pinned, p.memory_mib) for p in result.parts] == parts


@pytest.mark.parametrize("emulator_cpus", [0, 1])
def test_a_cell_with_no_core_as_small_as_the_guest_gives_memory_alone(emulator_cpus):
    cells = [cell(0, "0123", physnets=frozenset("a"), memory_mib=9), cell(1, "01", "0-")]
    whole = pinned(2, memory_mib=1, emulator_cpus=emulator_cpus)
    guest = Guest((whole,), names_nodes=False, threads="require", physnets=frozenset("a"))
    result = answer(cells, guest)
    assert isinstance(result, Plan)
    assert [p.memory_mib for p in result.parts] == [1, 0]


def test_a_guest_that_floats_is_on_no_cell_and_has_memory_of_any():
    guest = Guest((Node(9, memory_mib=1800),), names_nodes=False, floats=True)
    assert answer([cell(0), cell(1)], guest, memory_mib=1800).parts == ()
    assert "1800 MiB" in why_not(answer([cell(0), cell(1)], guest, memory_mib=1799))


# -- CPUs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "policy", "expected"),
    [
        (2, "require", (20, 21)),
        (4, "require", None),
        (3, "require", None),
        (2, "prefer", (20, 21)),
        (3, "", (0, 20, 21)),
        (1, "", (0,)),
        (1, "isolate", None),
    ],
)
def test_cores_are_taken_as_the_thread_policy_wants(count, policy, expected):
    result = answer([cell(0, "0-", "0-", "01")], one(pinned(count), threads=policy))
    assert (cpus_of(result) if isinstance(result, Plan) else None) == (expected and [expected])


def test_floating_cpus_of_a_node_are_never_more_than_there_are_whatever_the_ratio():
    cells = [cell(0, vcpus=64, floating=4)]
    assert cells_of(answer(cells, one(Node(4)))) == [0]
    assert "5 shared" in why_not(answer(cells, one(Node(5))))


def test_threads_of_the_emulator_have_a_cpu_on_the_cell_of_their_node():
    node = pinned(2, emulator_cpus=1)
    result = answer([cell(0, "01"), cell(1, "01", "0-")], one(node))
    assert isinstance(result, Plan)
    assert (result.parts[0].pinned_cpus, result.parts[0].emulator_cpus) == ((0, 1, 10), (10,))


# -- memory -------------------------------------------------------------------------------------


def test_memory_is_in_the_largest_pages_that_hold_all_of_it_in_whole_pages():
    cells = [cell(0, pages_mib={2048: 4096, 1048576: 4096})]
    for memory, size in ((2048, 1048576), (1026, 2048), (1025, None)):
        result = answer(cells, one(Node(1, memory_mib=memory, page_sizes=HUGE)))
        assert (result.parts[0].page_size_kib if isinstance(result, Plan) else None) == size
    any_page = one(Node(1, memory_mib=513, page_sizes=HUGE | {0}))
    assert answer(cells, any_page).parts[0].page_size_kib is None


# -- devices ------------------------------------------------------------------------------------

TWO: list[Cell] = [cell(0, "01", package=0), cell(1, "01", package=0), cell(2, "01", package=1)]


@pytest.mark.parametrize(
    ("nearness", "on", "expected"),
    [
        ("required", 1, [1]),
        ("required", None, None),
        ("required", 9, None),
        ("legacy", 1, [1]),
        ("legacy", None, [0]),
        ("preferred", 1, [1]),
        ("preferred", 9, [0]),
        ("socket", 1, [1]),
        ("socket", None, None),
        ("", 1, [1]),
    ],
)
def test_a_device_is_as_near_as_it_must_be(nearness, on, expected):
    result = answer(TWO, one(pinned(2), wishes=near(nearness)), device("gpu", on))
    assert (cells_of(result) if isinstance(result, Plan) else None) == expected


def test_a_device_may_be_for_one_node():
    guest = Guest((pinned(1), pinned(2)), wishes=near("required", node=1))
    assert cells_of(answer(TWO, guest, device("gpu", 0))) == [1, 0]


def test_devices_are_of_class_and_and_traits_and_free():
    devices = (
        device("busy", 0, free=0),
        device("other", 0, "VF"),
        device("old", 0, traits=frozenset(("OLD",))),
        device("right", 2, traits=frozenset(("NEW", "BIG"))),
    )
    wish = Wish(
        "", "GPU", required=frozenset((frozenset(("NEW", "NEWER")),)), forbidden=frozenset(("OLD",))
    )
    assert devices_of(answer(TWO, one(pinned(1), wishes=(wish,)), *devices)) == ["right"]
    of_other = replace(wish, devices=frozenset(("old",)))
    assert isinstance(answer(TWO, one(pinned(1), wishes=(of_other,)), *devices), Refusal)


def test_units_are_given_once_and_a_wish_for_several_gets_them_of_one_device():
    card = device("card", 0, free=3, units=("a", "b", "c"))
    wishes = (Wish("x", "GPU"), Wish("y", "GPU", amount=2))
    result = answer(TWO, one(pinned(1), wishes=wishes), card)
    assert [given.units for given in result.given] == [("a",), ("b", "c")]
    halves = [device(name, 0, free=1) for name in ("one", "other")]
    assert isinstance(answer(TWO, one(pinned(1), wishes=wishes[1:]), *halves), Refusal)


# -- networks -----------------------------------------------------------------------------------


def test_some_cell_of_the_guest_is_near_each_network_that_any_cell_is_near():
    cells = [
        cell(0),
        cell(1, physnets=frozenset(("left",))),
        cell(2, physnets=frozenset(("right",)), tunneled=True),
    ]
    left = one(Node(1), physnets=frozenset(("left", "nowhere")))
    assert cells_of(answer(cells, left)) == [1]
    both = {"physnets": frozenset(("left", "right"))}
    assert "[neutron]physnets" in why_not(answer(cells, one(Node(1), **both)))
    assert cells_of(answer(cells, Guest((Node(1), Node(1)), **both))) == [1, 2]
    assert cells_of(answer(cells, one(Node(1), needs_tunnel=True))) == [2]
