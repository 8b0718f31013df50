"""Arithmetic of amounts by provider and class."""

from hypothesis import given
from hypothesis import strategies as st

from compute_agent.placement.allocations.amounts import (
    MutableAmounts,
    add,
    as_request,
    covers,
    of_entries,
    of_record,
    shortfalls,
    subtract,
    without_zeros,
)

RESOURCES = st.dictionaries(st.sampled_from(["VCPU", "VGPU", "DISK_GB"]), st.integers(0, 3))
AMOUNTS = st.dictionaries(st.sampled_from(["a", "b", "c"]), RESOURCES)


@given(AMOUNTS, AMOUNTS)
def test_what_was_added_can_be_subtracted_again(held: MutableAmounts, part: MutableAmounts) -> None:
    assert subtract(add(held, part), part) == without_zeros(held)


@given(AMOUNTS, AMOUNTS)
def test_what_was_subtracted_can_be_added_again(held: MutableAmounts, part: MutableAmounts) -> None:
    whole = add(held, part)
    assert without_zeros(add(subtract(whole, held), held)) == without_zeros(whole)


@given(AMOUNTS, AMOUNTS, AMOUNTS)
def test_a_sum_depends_neither_on_order_nor_on_grouping(
    first: MutableAmounts, second: MutableAmounts, third: MutableAmounts
) -> None:
    assert add(first, second) == add(second, first)
    assert add(add(first, second), third) == add(first, add(second, third))


@given(AMOUNTS, AMOUNTS)
def test_covering_is_reflexive_and_antisymmetric(
    first: MutableAmounts, second: MutableAmounts
) -> None:
    assert covers(first, first)
    both = covers(first, second) and covers(second, first)
    assert both == (without_zeros(first) == without_zeros(second))


@given(AMOUNTS, AMOUNTS, AMOUNTS)
def test_covering_is_transitive(
    first: MutableAmounts, second: MutableAmounts, third: MutableAmounts
) -> None:
    larger, largest = add(first, second), add(first, second, third)
    assert covers(larger, first)
    assert covers(largest, larger)
    assert covers(largest, first)


@given(AMOUNTS, AMOUNTS)
def test_adding_the_shortfalls_makes_amounts_cover_a_part(
    held: MutableAmounts, part: MutableAmounts
) -> None:
    missing = [
        {short.provider: {short.resource_class: short.amount - short.held_amount}}
        for short in shortfalls(held, part)
    ]
    assert covers(held, part) == (not missing)
    assert covers(add(held, *missing), part)


@given(AMOUNTS, AMOUNTS)
def test_no_argument_is_changed(held: MutableAmounts, part: MutableAmounts) -> None:
    before = repr((held, part))
    total = add(held, part)
    for resources in total.values():
        resources["VCPU"] = -1
    subtract(held, part)
    assert repr((held, part)) == before


@given(AMOUNTS)
def test_amounts_come_back_from_a_body_of_the_api(amounts: MutableAmounts) -> None:
    assert of_entries(as_request(amounts)) == amounts
    assert of_record({"allocations": as_request(amounts)}) == amounts


def test_a_record_without_allocations_names_nothing() -> None:
    assert of_record({}) == {}
