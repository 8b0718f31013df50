"""Ways to bind devices to the NUMA nodes of a guest."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compute_agent.request.candidate_request import CandidateRequest, RequestGroup
from compute_agent.request.guest_numa import GuestNode, GuestNuma, policies
from compute_agent.request.pci_aliases import PciAlias
from compute_agent.request.spec import PciRequest
from compute_agent.scheduler.candidates import Candidate, ProviderSummary
from compute_agent.scheduler.device_affinity import MOST_WAYS, bindings
from compute_agent.scheduler.search.layout_queries import shapes
from compute_agent.scheduler.weighers import order
from tests.unit.scheduler.specs import spec


def request_for(classes: list[str], *together: str) -> CandidateRequest:
    groups = {f"_D{i}": RequestGroup({name: 1}) for i, name in enumerate(classes)}
    relations = frozenset({frozenset(together)}) if together else frozenset()
    return CandidateRequest(groups, same_subtree=relations)


def renamed(way: tuple[int, ...], classes: list[str], nodes: list[int]) -> tuple[object, ...]:
    """The least of what a way looks like when equal nodes are exchanged and devices unnamed."""
    equal = [o for o in permutations(range(len(nodes))) if [nodes[i] for i in o] == nodes]
    return tuple(
        min(sorted((classes[d], order[node]) for d, node in enumerate(way)) for order in equal)
    )


@given(
    st.lists(st.sampled_from(["VGPU", "FPGA"]), max_size=3),
    st.lists(st.sampled_from([1, 2]), min_size=1, max_size=3),
)
def test_each_way_is_asked_for_once_whatever_is_equal(classes: list[str], sizes: list[int]) -> None:
    nodes = [GuestNode(size, 0, 0) for size in sizes]
    request = request_for(classes)
    required = dict.fromkeys(request.groups, "required")
    every = product(range(len(nodes)), repeat=len(classes))
    expected = {renamed(way, classes, sizes) for way in every}
    found = bindings(request, required, nodes)
    if len(expected) > MOST_WAYS:
        assert found == ({},)
        return
    ways = [tuple(way[f"_D{i}"] for i in range(len(classes))) for way in found]
    assert len(ways) == len(expected)
    assert {renamed(way, classes, sizes) for way in ways} == expected


def test_what_is_bound_by_name_stays_and_makes_its_node_another() -> None:
    request = request_for(["VGPU", "FPGA"], "_NUMA1", "_D0")
    nodes = [GuestNode(1, 0, 0)] * 2
    required = dict.fromkeys(request.groups, "required")
    assert bindings(request, required, nodes) == ({"_D1": 0}, {"_D1": 1})


def test_a_node_that_something_must_be_away_from_is_another_than_its_equals() -> None:
    away = frozenset({(frozenset({"_D0"}), frozenset({"_NUMA0"}))})
    request = replace(request_for(["VGPU"]), apart=away)
    nodes = [GuestNode(1, 0, 0)] * 2
    assert bindings(request, {"_D0": "required"}, nodes) == ({"_D0": 0}, {"_D0": 1})


def test_the_first_node_is_another_where_a_trait_must_be_in_line_with_it() -> None:
    request = request_for(["VGPU"])
    required = dict.fromkeys(request.groups, "required")
    nodes = [GuestNode(1, 0, 0)] * 2
    numa = GuestNuma(tuple(nodes), names_nodes=True)
    request = request.with_group("", RequestGroup({"VCPU": 2}).requiring("CUSTOM_OWN"))
    near = [shape.request.same_subtree for shape in shapes(request, numa, required)[1:]]
    assert [{names for names in bound if "_D0" in names} for bound in near] == [
        {frozenset(("_D0", "_NUMA0"))},
        {frozenset(("_D0", "_NUMA1"))},
    ]


@pytest.mark.parametrize(
    "other",
    [
        {"groups": {"_D0": RequestGroup({"VGPU": 1}, member_of=frozenset({frozenset({"a"})}))}},
        {"groups": {"_D0": RequestGroup({"VGPU": 1}, forbidden_aggregates=frozenset({"a"}))}},
        {"same_subtree": frozenset({frozenset({"_D0", "_CARD"})})},
        {"apart": frozenset({(frozenset({"_CARD"}), frozenset({"_D0"}))})},
    ],
)
def test_devices_are_equal_only_if_all_that_is_asked_of_them_is(other: dict[str, Any]) -> None:
    request = request_for(["VGPU", "VGPU"])
    groups = {**request.groups, "_CARD": RequestGroup({"FPGA": 1}), **other.pop("groups", {})}
    request = replace(request, groups=groups, **other)
    required = dict.fromkeys(("_D0", "_D1"), "required")
    ways = bindings(request, required, [GuestNode(1, 0, 0), GuestNode(2, 0, 0)])
    assert {(way["_D0"], way["_D1"]) for way in ways} == set(product(range(2), repeat=2))


def test_very_many_ways_are_not_tried() -> None:
    request = request_for(["VGPU"] * 40)
    required = dict.fromkeys(request.groups, "required")
    assert bindings(request, required, [GuestNode(1, 0, 0)] * 16) == ({},)


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ({"hw:numa_nodes": "1"}, {"r-0": "legacy"}),
        ({}, {}),
        (
            {"hw:numa_nodes": "1", "hw:pci_numa_affinity_policy": "preferred"},
            {"r-0": "preferred", "_ACC": "preferred"},
        ),
    ],
)
def test_the_setting_of_the_flavor_is_for_all_devices_and_goes_before_an_alias(
    extra: dict[str, str], expected: dict[str, str]
) -> None:
    asked = spec(extra, pci_requests=(PciRequest("r", "card"),))
    classes = {
        "": ["VCPU"],
        "r-0": ["PGPU"],
        "_ACC": ["FPGA"],
        "port": ["NET_BW_EGR_KILOBIT_PER_SEC"],
    }
    assert policies(asked, {"card": PciAlias("PGPU")}, classes) == expected


def test_of_the_candidates_of_a_host_those_with_near_devices_come_first() -> None:
    providers = {
        "host": ProviderSummary("host", "host"),
        **{
            name: ProviderSummary(name, "host", parent, {"FPGA": 1}, {}, frozenset(traits))
            for name, parent, traits in (
                ("cell0", "host", {"HW_NUMA_ROOT"}),
                ("cell1", "host", {"HW_NUMA_ROOT"}),
                ("near", "cell0", set()),
                ("far", "cell1", set()),
            )
        },
    }
    offered = [
        Candidate("host", {name: {"FPGA": 1}}, {"_NUMA0": ("cell0",), "_ACC": (name,)})
        for name in ("far", "near")
    ]
    first, _ = order.candidates_in_order(offered, providers, {"_ACC": "preferred"})
    assert first.mappings["_ACC"] == ("near",)
    assert order.candidates_in_order(offered, providers) == tuple(offered)
