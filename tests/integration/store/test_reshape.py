"""Reshapes on every database: the arithmetic of generations, and the order of refusals."""

from __future__ import annotations

import pytest

from placement_server.store import audit
from placement_server.store.allocations import allocations, reshape
from placement_server.store.errors import (
    CapacityExceeded,
    ConsumerGenerationConflict,
    InventoryInUse,
    ProviderNotFound,
    ReshapeGenerationConflict,
    ReshapeProviderNotFound,
    ResourceClassNotFound,
    StoreError,
)
from placement_server.store.providers import inventory_rows
from placement_server.store.records import ConsumerWrite, InventoryRecord
from placement_server.store.store import Store
from tests.integration.store.conftest import (
    generation_of,
    new_provider,
    new_uuid,
    set_of,
    use_of,
)

Sets = dict[str, InventoryRecord]
VCPU, DISK = {"VCPU": InventoryRecord(8)}, {"DISK_GB": InventoryRecord(100)}


def apply(store: Store, wanted: dict[str, tuple[int, Sets]], *writes: ConsumerWrite) -> None:
    store.write(reshape.apply, wanted, writes)


def test_generations_follow_the_known_example_there_and_back(store: Store) -> None:
    """Parent 5 and child 0 become 8 and 3, and going back 11 and 5."""
    parent = new_provider(store, {"VCPU": 8, "DISK_GB": 100})
    child = new_provider(store, parent=parent)
    one, two = new_uuid(), new_uuid()
    for _ in range(2):
        for consumer in (one, two):
            amounts = {"VCPU": 1, "DISK_GB": 10}
            store.write(allocations.write, [set_of(consumer, {parent: amounts})])
    assert (generation_of(store, parent), generation_of(store, child)) == (5, 0)

    apply(
        store,
        {parent: (5, DISK), child: (0, VCPU)},
        *(
            set_of(consumer, {parent: {"DISK_GB": 10}, child: {"VCPU": 1}}, 2)
            for consumer in (one, two)
        ),
    )
    assert (generation_of(store, parent), generation_of(store, child)) == (8, 3)
    assert use_of(store, parent) == {"DISK_GB": 20}
    assert use_of(store, child) == {"VCPU": 2}

    apply(
        store,
        {parent: (8, VCPU | DISK), child: (3, {})},
        set_of(one, {parent: {"VCPU": 1, "DISK_GB": 10}}, 3),
        set_of(two, {}, 3),
    )
    assert (generation_of(store, parent), generation_of(store, child)) == (11, 5)
    assert use_of(store, parent) == {"VCPU": 1, "DISK_GB": 10}


@pytest.mark.parametrize(("records", "rise"), [(VCPU, 2), ({}, 1)])
def test_inventory_alone_raises_a_generation_by_two_or_emptied_by_one(
    store: Store, records: Sets, rise: int
) -> None:
    provider = new_provider(store, {"DISK_GB": 1})
    apply(store, {provider: (1, records)})
    assert generation_of(store, provider) == 1 + rise


def test_a_provider_named_in_allocations_only_rises_by_one_and_keeps_its_inventory(
    store: Store,
) -> None:
    listed, named = new_provider(store), new_provider(store, {"VCPU": 2})
    apply(store, {listed: (0, DISK)}, set_of(new_uuid(), {named: {"VCPU": 1}}))
    assert generation_of(store, named) == 2
    assert use_of(store, named) == {"VCPU": 1}


def test_new_inventory_counts_at_once_and_reserved_is_not_checked(store: Store) -> None:
    provider = new_provider(store)
    record = InventoryRecord(4, reserved=4, allocation_ratio=2.0)
    with pytest.raises(CapacityExceeded):
        apply(store, {provider: (0, {"VCPU": record})}, set_of(new_uuid(), {provider: {"VCPU": 1}}))
    apply(store, {provider: (0, {"VCPU": record})})
    assert store.read(inventory_rows.of_provider, provider)[1]["VCPU"].record == record


def test_refusals_come_in_the_order_of_the_request(store: Store) -> None:
    one, two = new_provider(store, {"VCPU": 4}), new_provider(store, {"VCPU": 4})
    holder, unknown = new_uuid(), new_uuid()
    store.write(allocations.write, [set_of(holder, {one: {"VCPU": 1}, two: {"VCPU": 1}}, None)])
    before = [generation_of(store, p) for p in (one, two)]
    stale = set_of(holder, {one: {"VCPU": 1}}, 9)
    nowhere = set_of(new_uuid(), {unknown: {"CUSTOM_NONE": 1}})

    def refused(
        error: type[StoreError], wanted: dict[str, tuple[int, Sets]], *writes: ConsumerWrite
    ) -> StoreError:
        with pytest.raises(error) as caught:
            apply(store, wanted, *writes)
        assert type(caught.value) is error
        return caught.value

    refused(ReshapeProviderNotFound, {unknown: (0, {}), one: (9, {})}, stale)
    refused(ReshapeGenerationConflict, {one: (9, {}), unknown: (0, {})}, stale)
    refused(ConsumerGenerationConflict, {one: (2, {})}, stale, nowhere)
    refused(ProviderNotFound, {one: (2, {"CUSTOM_B": InventoryRecord(1)})}, nowhere)
    classes = {"CUSTOM_B": InventoryRecord(1), "CUSTOM_A": InventoryRecord(1)}
    error = refused(
        ResourceClassNotFound,
        {one: (2, classes)},
        set_of(new_uuid(), {two: {"CUSTOM_NONE": 1}}),
    )
    assert isinstance(error, ResourceClassNotFound)
    assert error.names == ("CUSTOM_B", "CUSTOM_A")
    for order in ([one, two], [two, one]):
        in_use = refused(InventoryInUse, {uuid: (2, {}) for uuid in order})
        assert order[0] in str(in_use)
    assert [generation_of(store, p) for p in (one, two)] == before


def test_nothing_is_wrong_after_all_of_this(store: Store) -> None:
    assert store.read(audit.audit) == []
