"""Shapes that consumers keep when they move, and consumers that do not move."""

from __future__ import annotations

import numpy as np
import pytest

from placement_server.candidates.make_room.holdings import Holdings
from placement_server.candidates.query.query import CandidateQuery
from tests.property.candidates.moving import Fleet
from tests.unit.candidates.forest import SHARING, Provider, writer_of

HOSTS = [
    provider
    for name in ("a", "b")
    for provider in (
        Provider(name, None, {"DISK_GB": 9}, ("CUSTOM_HOST", "COMPUTE_STATUS_DISABLED"), ("agg",)),
        Provider(f"{name}cell", name, {"VCPU": 9, "MEMORY_MB": 9}, ("HW_NUMA_ROOT",)),
        Provider(f"{name}nic", f"{name}cell", {}),
        Provider(f"{name}port", f"{name}nic", {"SRIOV_NET_VF": 9}, ("CUSTOM_NET",)),
        Provider(f"{name}gpu", name, {"VGPU": 9}),
    )
] + [Provider("pool", None, {"DISK_GB": 99}, (SHARING,), ("agg",))]


def holdings(**held: dict[tuple[str, str], int]) -> Holdings:
    fleet = Fleet(HOSTS, held)
    index = writer_of(fleet.world()).index
    none = np.zeros(index.size, bool)
    ignored = {"COMPUTE_STATUS_DISABLED"}
    return Holdings(index, fleet.held(), none, {"left alone"}, ignored, {})


def text(query: CandidateQuery) -> list[str]:
    groups = [
        f"{group.suffix} {dict(group.resources)} {[*map(list, group.required)]}"
        for group in query.groups
    ]
    return groups + [",".join(sorted(rule.together)) for rule in query.same_subtree]


def test_a_consumer_keeps_amounts_traits_and_what_lies_below_what() -> None:
    held = {
        ("a", "DISK_GB"): 1,
        ("acell", "VCPU"): 2,
        ("acell", "MEMORY_MB"): 3,
        ("aport", "SRIOV_NET_VF"): 1,
        ("agpu", "VGPU"): 1,
    }
    movable = holdings(c=held)
    query = movable.shapes[movable.shape(0)]
    assert text(query) == [
        "_1 {'DISK_GB': 1} [['CUSTOM_HOST']]",
        "_2 {'VCPU': 2, 'MEMORY_MB': 3} [['HW_NUMA_ROOT']]",
        "_3 {'SRIOV_NET_VF': 1} [['CUSTOM_NET']]",
        "_4 {'VGPU': 1} []",
        "_1,_2",
        "_2,_3",
        "_1,_4",
    ]
    assert query.group_policy == "isolate"
    assert movable.memory.tolist() == [3]


def test_consumers_that_hold_alike_on_different_hosts_have_one_shape() -> None:
    def of(host: str) -> dict[tuple[str, str], int]:
        return {(f"{host}cell", "VCPU"): 2, ("pool", "DISK_GB"): 5}

    movable = holdings(c=of("a"), d=of("b"), e={("acell", "VCPU"): 2})
    assert movable.shape(0) == movable.shape(1) != movable.shape(2)
    assert len(set(movable.identities.tolist())) == 3


@pytest.mark.parametrize(
    ("held", "is_movable"),
    [
        ({("acell", "VCPU"): 1, ("pool", "DISK_GB"): 1}, True),
        ({("pool", "DISK_GB"): 1}, True),
        ({("acell", "VCPU"): 1, ("bcell", "VCPU"): 1}, False),
    ],
)
def test_who_holds_something_of_two_hosts_stays(
    held: dict[tuple[str, str], int], is_movable: bool
) -> None:
    movable = holdings(c=held)
    assert (movable.tree[0] >= 0) == movable.is_whole == is_movable


def test_a_consumer_that_holds_more_than_is_in_use_stays() -> None:
    fleet = Fleet(HOSTS, {"c": {("acell", "VCPU"): 2}, "d": {("bcell", "VCPU"): 1}})
    index = writer_of(HOSTS).index
    movable = Holdings(index, fleet.held(), np.zeros(index.size, bool), (), (), {})
    assert movable.tree.tolist() == [-1, -1]
    assert not movable.is_whole
