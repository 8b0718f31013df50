"""The rules of a claim, apart from any database."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement_server.store.allocations import claim_check
from placement_server.store.allocations.claim_check import (
    AmountSummary,
    KnownInventory,
    ProviderRequest,
    RequestedAllocations,
    changes,
)
from placement_server.store.errors import (
    AllocationRefused,
    CapacityExceeded,
    ConstraintViolated,
    InvalidInventoryForAllocation,
)
from placement_server.store.records import Key

STOCK = KnownInventory(id=1, min_unit=1, max_unit=100, step_size=1, capacity=10, used=0)
CLASS_IDS = {f"RC{class_id}": class_id for class_id in range(10)}


def ask(amount: int, provider: int = 1, class_id: int = 0, consumer: str = "c") -> ProviderRequest:
    return ProviderRequest(consumer, f"p{provider}", provider, {f"RC{class_id}": amount})


def check(
    asked: Sequence[ProviderRequest],
    stock: Mapping[Key, KnownInventory],
    given_back: Mapping[Key, int],
) -> dict[Key, AmountSummary]:
    return claim_check.check(RequestedAllocations(asked, CLASS_IDS), stock, given_back)


def test_a_claim_up_to_the_last_unit_is_granted_and_one_more_is_not() -> None:
    assert check([ask(4)], {(1, 0): STOCK._replace(used=6)}, {})[1, 0].total == 4
    words = "allocate 5 of RC0 from provider p1: 4 free"
    with pytest.raises(CapacityExceeded, match=words) as refused:
        check([ask(5)], {(1, 0): STOCK._replace(used=6)}, {})
    assert (refused.value.uuid, refused.value.resource_class) == ("p1", "RC0")


def test_amounts_of_several_consumers_add_up_and_the_first_that_does_not_fit_is_named() -> None:
    asked = [ask(4, consumer="a"), ask(4, consumer="b"), ask(4, consumer="c")]
    with pytest.raises(CapacityExceeded, match="allocate 4 of RC0 from provider p1: 2 free"):
        check(asked, {(1, 0): STOCK}, {})


def test_minimum_maximum_and_step_apply_to_each_amount_and_never_to_the_sum() -> None:
    stock = {(1, 0): STOCK._replace(min_unit=2, max_unit=4, step_size=2)}
    assert check([ask(4, consumer="a"), ask(4, consumer="b")], stock, {})[1, 0] == (8, 4, 4)
    for amount in (1, 3, 6):
        with pytest.raises(ConstraintViolated):
            check([ask(amount)], stock, {})


def test_a_provider_without_any_of_the_classes_is_named_with_all_of_them_by_id() -> None:
    asked = [ask(1, provider=1, class_id=2), ask(1, provider=2, class_id=0)]
    with pytest.raises(InvalidInventoryForAllocation) as refused:
        check(asked, {(1, 2): STOCK}, {})
    assert refused.value.resource_classes == ("RC0", "RC2")
    assert refused.value.uuids == ("p2",)


def test_a_missing_class_at_a_provider_that_has_another_is_named_alone() -> None:
    with pytest.raises(InvalidInventoryForAllocation) as refused:
        check([ask(1), ask(1, class_id=7)], {(1, 0): STOCK}, {})
    assert refused.value.resource_classes == ("RC7",)


def test_changes_come_in_the_global_lock_order() -> None:
    stock = {(p, c): STOCK._replace(id=10 * p + c) for p in (1, 2) for c in (0, 1)}
    asked = [ask(1, 2, 1), ask(2, 1, 1), ask(3, 2, 0)]
    result = changes(check(asked, stock, {(1, 0): 4}), stock, {(1, 0): 4})
    assert [(c.provider_id, c.class_id, c.delta) for c in result] == [
        (1, 0, -4),
        (1, 1, 2),
        (2, 0, 3),
        (2, 1, 1),
    ]


def test_an_unchanged_amount_is_still_proved_against_the_inventory() -> None:
    stock = {(1, 0): STOCK._replace(step_size=2)}
    (change,) = changes(check([ask(4)], stock, {(1, 0): 4}), stock, {(1, 0): 4})
    assert (change.delta, change.smallest, change.largest, change.step_size) == (0, 4, 4, 2)


INVENTORIES = st.builds(
    KnownInventory,
    id=st.just(1),
    min_unit=st.integers(1, 2),
    max_unit=st.integers(4, 5),
    step_size=st.sampled_from([1, 1, 2]),
    capacity=st.integers(0, 40),
    used=st.integers(0, 20),
)
KEYS = st.sampled_from([(1, 0), (1, 1)])
ASKED = st.lists(st.tuples(KEYS, st.integers(1, 5)), min_size=2, max_size=6)
STOCKS = st.dictionaries(KEYS, INVENTORIES, min_size=2)
BACK = st.dictionaries(KEYS, st.integers(0, 12))


def first_refused(
    asked: Sequence[tuple[Key, int]],
    stock: Mapping[Key, KnownInventory],
    given_back: Mapping[Key, int],
) -> int | None:
    """The number of the first amount that cannot be given when they are taken one by one."""
    taken: dict[Key, int] = {}
    for number, (key, amount) in enumerate(asked):
        taken[key] = taken.get(key, 0) + amount
        inventory, back = stock.get(key), given_back.get(key, 0)
        if inventory is None:
            return number
        of_units = amount in range(inventory.min_unit, inventory.max_unit + 1)
        fits = taken[key] <= back or inventory.used - back + taken[key] <= inventory.capacity
        if not of_units or amount % inventory.step_size or not fits:
            return number
    return None


@given(ASKED, STOCKS, BACK)
def test_all_is_granted_if_and_only_if_each_amount_could_be_taken_after_the_other(
    asked: list[tuple[Key, int]], stock: dict[Key, KnownInventory], given_back: dict[Key, int]
) -> None:
    parts = [ask(amount, *key, consumer=f"c{n}") for n, (key, amount) in enumerate(asked)]
    refused = first_refused(asked, stock, given_back)
    if refused is None:
        totals = {key: sum(a for k, a in asked if k == key) for key, _ in asked}
        granted = check(parts, stock, given_back)
        assert {key: summary.total for key, summary in granted.items()} == totals
    else:
        with pytest.raises(AllocationRefused) as error:
            check(parts, stock, given_back)
        assert parts[refused].provider_uuid in str(error.value)
