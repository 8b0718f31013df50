"""The order of the planner: which of the plans that keep the rules a guest gets."""

from __future__ import annotations

import pytest

from compute_agent.fitting.guest import Guest, Node
from compute_agent.fitting.host import Host, PlanOptions
from compute_agent.fitting.plan import Plan
from compute_agent.fitting.planner import plan
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
)


def sockets(*drawn: str, number: int = 4, **fields):
    """Cells of which each two have a socket."""
    return [
        cell(
            i,
            *drawn,
            distances={j: 10 if i == j else 12 if i // 2 == j // 2 else 32 for j in range(number)},
            package=i // 2,
            **fields,
        )
        for i in range(number)
    ]


PAIRS = [
    device("0", 0, link_group="A", pcie_root="x"),
    device("1", 0, link_group="B", pcie_root="x"),
    device("2", 0, link_group="A", pcie_root="y"),
    device("3", 0, link_group="B", pcie_root="y"),
]


def test_devices_asked_for_as_several_are_of_one_link_group():
    result = answer([cell(0, "01")], one(pinned(1), wishes=near("", 2)), *PAIRS)
    assert devices_of(result) == ["0", "2"]


@pytest.mark.parametrize(("keep_links", "expected"), [(True, "1"), (False, "0")])
def test_a_single_device_is_of_a_group_that_is_broken_already(keep_links, expected):
    broken = [*PAIRS[:3], device("3", 0, free=0, used=True, link_group="B", pcie_root="y")]
    host = Host((cell(0, "01"),), tuple(broken))
    result = plan(host, one(pinned(1), wishes=near()), PlanOptions(keep_links=keep_links))
    assert devices_of(result) == [expected]


@pytest.mark.parametrize(("spare", "expected"), [(True, [1]), (False, [0])])
def test_a_guest_without_devices_stays_off_cells_that_have_free_ones(spare, expected):
    host = Host((cell(0, "01"), cell(1, "01")), (device("a", 0),))
    result = plan(host, one(pinned(2)), PlanOptions(spare_device_cells=spare))
    assert cells_of(result) == expected
    used = Host(host.cells, (device("a", 0, free=0),))
    assert cells_of(plan(used, one(pinned(2)))) == [0]
    alone = Host(host.cells[:1], host.devices)
    assert cells_of(plan(alone, one(pinned(2)))) == [0], "where no other cell does"


@pytest.mark.parametrize(
    ("drawn", "count", "expected"),
    [
        (("0-", "01"), 2, (10, 11)),
        (("01", "0-"), 1, (10,)),
        (("01", "0-", "01"), 3, (0, 1, 10)),
        (("01", "01"), 3, (0, 1, 10)),
        (("0-", "0-", "01"), 4, (0, 10, 20, 21)),
    ],
)
def test_whole_cores_are_taken_first_and_fractions_where_a_core_is_broken(drawn, count, expected):
    assert cpus_of(answer([cell(0, *drawn)], one(pinned(count)))) == [expected]


def test_cpus_of_one_l3_group_are_taken_and_whole_groups_stay_whole():
    cells = [cell(0, "01", "--", "01", "01", "01", "01", per_group=2)]
    assert cpus_of(answer(cells, one(pinned(2)))) == [(0, 1)]
    assert cpus_of(answer(cells, one(pinned(4)))) == [(20, 21, 30, 31)]
    assert cpus_of(answer(cells, one(pinned(6)))) == [(0, 1, 20, 21, 30, 31)]


def test_cells_are_filled_or_spared_as_configured():
    taken = "--"
    drawn = ("01", "01", taken), ("01", "01", "01", taken), ("01", taken)
    host = Host(tuple(cell(number, *cores) for number, cores in enumerate(drawn)))
    assert cells_of(plan(host, one(pinned(2)))) == [1]
    assert cells_of(plan(host, one(pinned(2)), PlanOptions(packing=True))) == [2]


def test_of_equal_cells_and_devices_the_lowest_numbers_are_taken():
    devices = [device(name, on) for name, on in (("a", 0), ("b", 0), ("c", 1))]
    guest = one(pinned(2), wishes=near("required"))
    result = answer([cell(0, "01"), cell(1, "01")], guest, *devices)
    assert (cells_of(result), devices_of(result), cpus_of(result)) == ([0], ["a"], [(0, 1)])


def test_when_the_budget_ends_the_best_plan_so_far_is_given_and_says_so():
    host = Host(tuple(sockets("01", number=8)))
    guest = Guest(tuple(Node(1, memory_mib=100 + n) for n in range(4)))
    best, hurried = (plan(host, guest, PlanOptions(budget=budget)) for budget in (5000, 0))
    assert isinstance(best, Plan)
    assert isinstance(hurried, Plan)
    assert (best.is_best, hurried.is_best) == (True, False)
    assert hurried.cost >= best.cost
    many = [device(str(i), 0, link_group=str(i % 3), pcie_root=str(i // 3)) for i in range(11)]
    devices = answer([cell(0, "01")], one(pinned(1), wishes=near("", 6)), *many)
    assert isinstance(devices, Plan)
    assert not devices.is_best
