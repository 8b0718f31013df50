"""Ours, theirs, and what both started from."""

import pytest

from compute_agent.provider_tree.inventory import complete_inventory
from compute_agent.report.provider_writes import merge_inventory, merge_set


def inventory(**classes):
    return complete_inventory(classes)


@pytest.mark.parametrize(
    ("base", "theirs", "ours", "merged"),
    [
        ("AB", "AB", "AB", "AB"),
        ("AB", "ABT", "ABO", "ABTO"),
        ("AB", "A", "AB", "A"),
        ("AB", "ABT", "A", "AT"),
        ("", "T", "", "T"),
        ("A", "", "AO", "O"),
    ],
)
def test_our_additions_and_removals_are_applied_to_theirs(base, theirs, ours, merged):
    result = merge_set(frozenset(base), frozenset(theirs), frozenset(ours))
    assert result == frozenset(merged)


def test_our_class_wins_and_theirs_stays():
    base = inventory(VCPU={"total": 8})
    theirs = inventory(VCPU={"total": 7}, CUSTOM_T={"total": 1}, DISK_GB={"total": 5})
    ours = inventory(VCPU={"total": 9}, DISK_GB={"total": 3})
    merged = merge_inventory(base, theirs, ours)
    assert {rc: record["total"] for rc, record in merged.items()} == {
        "VCPU": 9,
        "DISK_GB": 3,
        "CUSTOM_T": 1,
    }


def test_a_class_we_dropped_is_dropped():
    base = inventory(VCPU={"total": 8}, VGPU={"total": 8})
    assert set(merge_inventory(base, base, inventory(VCPU={"total": 8}))) == {"VCPU"}


@pytest.mark.parametrize(
    ("field", "base", "theirs", "ours"),
    [("allocation_ratio", 4.0, 16.0, 2.0), ("reserved", 0, 8, 2)],
)
def test_what_an_operator_changed_is_followed_unless_we_changed_it_too(field, base, theirs, ours):
    found, changed, silent, decided = (
        inventory(VCPU={"total": total, field: value})
        for total, value in ((8, base), (8, theirs), (9, base), (9, ours))
    )
    assert merge_inventory(found, changed, silent)["VCPU"][field] == theirs
    assert merge_inventory(found, changed, decided)["VCPU"][field] == ours


def test_a_class_they_dropped_and_we_still_have_comes_back():
    base = inventory(VCPU={"total": 8})
    assert set(merge_inventory(base, inventory(), base)) == {"VCPU"}
