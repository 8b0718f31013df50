"""Large guests, split over cells of one host."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from compute_agent.request.candidate_request import CandidateRequest, RequestGroup
from compute_agent.request.guest_numa import GuestNode
from compute_agent.scheduler.search import split
from tests.unit.scheduler.trees import answered, candidate, summary


def probe(**resources: int) -> CandidateRequest:
    return CandidateRequest({"_NUMA0": RequestGroup(resources).requiring("HW_NUMA_ROOT")})


def cells_of(**free: tuple[int, int]) -> dict[str, dict[str, Any]]:
    return {
        name: summary(
            "host",
            {"VCPU": (100, 100 - vcpu), "MEMORY_MB": (100_000, 100_000 - memory)},
            "HW_NUMA_ROOT",
            parent="host",
        )
        for name, (vcpu, memory) in free.items()
    }


def test_a_guest_larger_than_a_cell_is_split_over_the_fewest_the_fullest_first() -> None:
    found = answered(
        [
            candidate(
                {"a": {"VCPU": 1, "MEMORY_MB": 1}, "host": {"DISK_GB": 5}},
                **{"_NUMA0": ["a"], "": ["host"]},
            )
        ],
        {
            "host": summary("host", {"DISK_GB": (9, 0)}),
            **cells_of(a=(4, 4000), b=(8, 8000), c=(6, 6000)),
        },
        "split",
    )
    [composed] = split.compose(found, GuestNode(10, 0, 9000), probe(VCPU=1, MEMORY_MB=1))
    assert composed.allocations == {
        "host": {"DISK_GB": 5},
        "a": {"VCPU": 4, "MEMORY_MB": 4000},
        "c": {"VCPU": 6, "MEMORY_MB": 5000},
    }
    assert composed.mappings == {"_NUMA0": ("a", "c"), "": ("host",)}


def test_every_cell_of_a_split_gives_a_cpu_and_memory() -> None:
    found = answered(
        [candidate({"a": {"VCPU": 1}}, _NUMA0=["a"])],
        {"host": summary("host"), **cells_of(a=(8, 100), b=(8, 5000))},
        "split",
    )
    [composed] = split.compose(found, GuestNode(8, 0, 5050), probe(VCPU=1))
    assert all(
        allocation["VCPU"] >= 1 and allocation["MEMORY_MB"] >= 1
        for allocation in composed.allocations.values()
    )
    assert sum(amounts["VCPU"] for amounts in composed.allocations.values()) == 8
    assert sum(amounts["MEMORY_MB"] for amounts in composed.allocations.values()) == 5050


def test_a_guest_that_all_cells_together_cannot_hold_has_no_split() -> None:
    found = answered(
        [candidate({"a": {"VCPU": 1}}, _NUMA0=["a"])],
        {"host": summary("host"), **cells_of(a=(4, 100), b=(4, 100))},
        "split",
    )
    assert split.compose(found, GuestNode(9, 0, 10), probe(VCPU=1)) == ()


def test_a_cell_without_a_required_trait_takes_no_part_in_a_split() -> None:
    found = answered(
        [candidate({"a": {"VCPU": 1}}, _NUMA0=["a"])],
        {"host": summary("host"), **cells_of(a=(4, 100), b=(4, 100))},
        "split",
    )
    fast = RequestGroup({"VCPU": 1}).requiring("CUSTOM_FAST")
    asked = CandidateRequest({"_NUMA0": fast})
    assert split.compose(found, GuestNode(6, 0, 10), asked) == ()


def test_what_other_groups_take_from_a_cell_stays_taken_and_is_not_given_twice() -> None:
    found = answered(
        [candidate({"a": {"VCPU": 3, "MEMORY_MB": 1}}, _NUMA0=["a"], _PROXY=["a"])],
        {"host": summary("host"), **cells_of(a=(4, 100), b=(4, 100))},
        "split",
    )
    asked = probe(VCPU=1, MEMORY_MB=1).with_group("_PROXY", RequestGroup({"VCPU": 2}))
    [composed] = split.compose(found, GuestNode(6, 0, 10), asked)
    assert sum(amounts["VCPU"] for amounts in composed.allocations.values()) == 8
    assert max(amounts["VCPU"] for amounts in composed.allocations.values()) == 4
    assert split.compose(found, GuestNode(7, 0, 10), asked) == ()


def test_an_isolated_group_keeps_its_cell_to_itself() -> None:
    cells = cells_of(a=(4, 100), b=(4, 100), c=(4, 100))
    found = answered(
        [candidate({"a": {"VCPU": 1}, "b": {"VCPU": 1}}, _NUMA0=["a"], _PROXY=["b"])],
        {"host": summary("host"), **cells},
        "split",
    )
    shared = probe(VCPU=1).with_group("_PROXY", RequestGroup({"VCPU": 1}))
    isolated = replace(shared, group_policy="isolate")
    [composed] = split.compose(found, GuestNode(8, 0, 0), isolated)
    assert composed.mappings["_NUMA0"] == ("a", "c")
    assert split.compose(found, GuestNode(9, 0, 0), isolated) == ()
    assert split.compose(found, GuestNode(9, 0, 0), shared) != ()


def test_every_cell_of_a_split_has_the_requested_traits_beside_it() -> None:
    cells = cells_of(a=(4, 100), b=(4, 100), c=(4, 100))
    for name in "ac":
        cells[name]["traits"] = ["HW_NUMA_ROOT", "CUSTOM_RACK7"]
    found = answered(
        [candidate({"a": {"VCPU": 1}}, _NUMA0=["a"], _TRAITS=["a"])],
        {"host": summary("host"), **cells},
        "split",
    )
    asked = probe(VCPU=1).with_group("_TRAITS", RequestGroup().requiring("CUSTOM_RACK7"))
    [composed] = split.compose(found, GuestNode(8, 0, 0), asked)
    assert composed.mappings["_NUMA0"] == ("a", "c")
    assert split.compose(found, GuestNode(9, 0, 0), asked) == ()
