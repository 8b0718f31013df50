"""Allocation writes on every database: sets, generations, consumers, refusals."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from placement_server.store import audit
from placement_server.store.allocations import allocations
from placement_server.store.errors import (
    CapacityExceeded,
    ConstraintViolated,
    ConsumerGenerationConflict,
    InvalidInventoryForAllocation,
    InventoryInUse,
    NoAllocations,
    ProviderNotFound,
    ResourceClassNotFound,
    StoreError,
)
from placement_server.store.providers import inventories
from placement_server.store.records import ANY, AnyGeneration, ConsumerWrite, InventoryRecord
from placement_server.store.store import Store
from tests.integration.store.conftest import (
    generation_of,
    new_provider,
    new_uuid,
    set_of,
    use_of,
)


def held(store: Store, consumer: str) -> dict[str, dict[str, int]]:
    result: dict[str, dict[str, int]] = {}
    for row in store.read(allocations.of_consumer, consumer)[1]:
        result.setdefault(row.provider_uuid, {})[row.resource_class] = row.used
    return result


def write(store: Store, *writes: ConsumerWrite) -> None:
    store.write(allocations.write, writes)


def test_a_write_replaces_the_whole_set_of_the_consumer(store: Store) -> None:
    first, second = new_provider(store, {"VCPU": 8, "DISK_GB": 9}), new_provider(store, {"VCPU": 8})
    consumer = new_uuid()
    write(store, set_of(consumer, {first: {"VCPU": 2, "DISK_GB": 3}}))
    write(store, set_of(consumer, {second: {"VCPU": 5}}))
    assert held(store, consumer) == {second: {"VCPU": 5}}
    assert use_of(store, first) == {"VCPU": 0, "DISK_GB": 0}
    assert use_of(store, second) == {"VCPU": 5}


def test_a_provider_with_two_inventories_and_three_claims_is_at_generation_five(
    store: Store,
) -> None:
    provider = new_provider(store)
    for name in ("VCPU", "MEMORY_MB"):
        store.write(
            inventories.add, provider, name, InventoryRecord(8), reserved_may_equal_total=True
        )
    for _ in range(3):
        write(store, set_of(new_uuid(), {provider: {"VCPU": 1}}))
    assert generation_of(store, provider) == 5


def test_generations_rise_once_per_request_for_providers_named_and_those_emptied(
    store: Store,
) -> None:
    named, emptied, left = (new_provider(store, {"VCPU": 8}) for _ in range(3))
    a, b, c = new_uuid(), new_uuid(), new_uuid()
    write(store, set_of(a, {named: {"VCPU": 1}, left: {"VCPU": 1}}))
    write(store, set_of(b, {emptied: {"VCPU": 1}}))
    before = [generation_of(store, p) for p in (named, emptied, left)]
    write(
        store,
        set_of(a, {named: {"VCPU": 2}}),
        set_of(b, {}),
        set_of(c, {named: {"VCPU": 1}}),
    )
    after = [generation_of(store, p) for p in (named, emptied, left)]
    assert [new - old for old, new in zip(before, after, strict=True)] == [1, 1, 0]


def test_deleting_allocations_raises_no_provider_generation_and_ends_the_consumer(
    store: Store,
) -> None:
    provider, consumer = new_provider(store, {"VCPU": 8}), new_uuid()
    write(store, set_of(consumer, {provider: {"VCPU": 1}}))
    before = generation_of(store, provider)
    store.write(allocations.delete, consumer)
    assert generation_of(store, provider) == before
    assert store.read(allocations.of_consumer, consumer) == (None, [])
    with pytest.raises(NoAllocations):
        store.write(allocations.delete, consumer)
    write(store, set_of(consumer, {provider: {"VCPU": 1}}, None))


def test_the_first_write_leaves_generation_one_and_each_further_one_adds_one(store: Store) -> None:
    provider, consumer = new_provider(store, {"VCPU": 8}), new_uuid()
    for generation in (None, 1, 2):
        write(store, set_of(consumer, {provider: {"VCPU": 1}}, generation))
    record, _ = store.read(allocations.of_consumer, consumer)
    assert record is not None
    assert record.generation == 3


@pytest.mark.parametrize("given", [0, 1, 5, 33])
def test_any_number_is_refused_for_an_unknown_consumer(store: Store, given: int) -> None:
    provider, consumer = new_provider(store, {"VCPU": 8}), new_uuid()
    with pytest.raises(ConsumerGenerationConflict) as conflict:
        write(store, set_of(consumer, {provider: {"VCPU": 1}}, given))
    assert (conflict.value.stored_generation, conflict.value.requested_generation) == (None, given)


def test_null_is_refused_for_a_known_consumer(store: Store) -> None:
    provider, consumer = new_provider(store, {"VCPU": 8}), new_uuid()
    write(store, set_of(consumer, {provider: {"VCPU": 1}}))
    with pytest.raises(ConsumerGenerationConflict) as conflict:
        write(store, set_of(consumer, {provider: {"VCPU": 1}}, None))
    assert (conflict.value.stored_generation, conflict.value.requested_generation) == (1, None)


def test_consumer_generations_are_checked_before_providers_and_those_before_classes(
    store: Store,
) -> None:
    nowhere = {new_uuid(): {"CUSTOM_UNKNOWN": 1}}
    with pytest.raises(ConsumerGenerationConflict):
        write(store, set_of(new_uuid(), nowhere, 7))
    with pytest.raises(ProviderNotFound):
        write(store, set_of(new_uuid(), nowhere))
    provider = new_provider(store, {"VCPU": 8})
    with pytest.raises(ResourceClassNotFound, match="CUSTOM_UNKNOWN"):
        write(store, set_of(new_uuid(), {provider: {"VCPU": 99, "CUSTOM_UNKNOWN": 1}}))


@pytest.mark.parametrize("expected", [None, ANY])
def test_a_failed_first_write_leaves_no_consumer(
    store: Store, expected: AnyGeneration | None
) -> None:
    provider, consumer = new_provider(store, {"VCPU": 8}), new_uuid()
    before = generation_of(store, provider)
    for bad in ({provider: {"VCPU": 9}}, {new_uuid(): {"VCPU": 1}}, {provider: {"DISK_GB": 1}}):
        with pytest.raises(StoreError):
            write(store, set_of(consumer, bad, expected))
    assert generation_of(store, provider) == before
    assert use_of(store, provider) == {"VCPU": 0}
    write(store, set_of(consumer, {provider: {"VCPU": 1}}, None))


def test_an_empty_write_for_an_unknown_consumer_does_nothing(store: Store) -> None:
    consumer = new_uuid()
    write(store, set_of(consumer, {}, None))
    with pytest.raises(ConsumerGenerationConflict):
        write(store, set_of(consumer, {}, 0))
    assert store.read(allocations.of_consumer, consumer) == (None, [])


def test_an_emptied_consumer_is_unknown_again(store: Store) -> None:
    provider, consumer = new_provider(store, {"VCPU": 8}), new_uuid()
    write(store, set_of(consumer, {provider: {"VCPU": 1}}, None))
    write(store, set_of(consumer, {}, 1))
    assert store.read(allocations.of_consumer, consumer) == (None, [])
    write(store, set_of(consumer, {provider: {"VCPU": 1}}, None))
    assert use_of(store, provider) == {"VCPU": 1}


def test_a_consumer_whose_record_was_lost_gives_back_what_it_held(store: Store) -> None:
    before, after = (new_provider(store, {"VCPU": 4}) for _ in range(2))
    consumer = new_uuid()
    write(store, set_of(consumer, {before: {"VCPU": 3}}, None))
    with store.engine.begin() as connection:
        connection.execute(sa.text("DELETE FROM consumers WHERE uuid = :uuid"), {"uuid": consumer})
    write(store, set_of(consumer, {after: {"VCPU": 1}}, None))
    assert held(store, consumer) == {after: {"VCPU": 1}}
    assert (use_of(store, before), use_of(store, after)) == ({"VCPU": 0}, {"VCPU": 1})


def test_project_user_and_type_follow_the_write_and_an_old_writer_keeps_the_type(
    store: Store,
) -> None:
    provider, consumer = new_provider(store, {"VCPU": 8}), new_uuid()
    amounts = {provider: {"VCPU": 1}}
    write(store, set_of(consumer, amounts, project="p1", user="u1"))
    write(store, set_of(consumer, amounts, project="p1", user="u1", consumer_type="INSTANCE"))
    write(store, set_of(consumer, amounts, project="p2", user="u2"))
    record, _ = store.read(allocations.of_consumer, consumer)
    assert record is not None
    assert (record.project_id, record.user_id, record.consumer_type) == ("p2", "u2", "INSTANCE")


def test_clearing_one_consumer_makes_room_for_another_in_the_same_request(store: Store) -> None:
    provider, a, b = new_provider(store, {"VCPU": 4}), new_uuid(), new_uuid()
    write(store, set_of(a, {provider: {"VCPU": 4}}))
    write(store, set_of(a, {}), set_of(b, {provider: {"VCPU": 4}}))
    assert use_of(store, provider) == {"VCPU": 4}
    assert held(store, a) == {}


def test_three_consumers_of_one_on_a_total_of_two_are_refused_together(store: Store) -> None:
    provider = new_provider(store, {"VCPU": 2})
    with pytest.raises(CapacityExceeded):
        write(store, *(set_of(new_uuid(), {provider: {"VCPU": 1}}) for _ in range(3)))
    assert use_of(store, provider) == {"VCPU": 0}


def test_an_over_full_provider_takes_rewrites_that_do_not_make_it_worse(store: Store) -> None:
    provider, a, b = new_provider(store, {"VCPU": 10}), new_uuid(), new_uuid()
    for consumer in (a, b):
        write(store, set_of(consumer, {provider: {"VCPU": 5}}))
    store.write(
        inventories.update_one,
        provider,
        "VCPU",
        InventoryRecord(4),
        generation=generation_of(store, provider),
        reserved_may_equal_total=True,
    )
    write(store, set_of(a, {provider: {"VCPU": 5}}))
    write(store, set_of(a, {provider: {"VCPU": 4}}))
    with pytest.raises(CapacityExceeded):
        write(store, set_of(a, {provider: {"VCPU": 5}}))
    with pytest.raises(CapacityExceeded):
        write(store, set_of(new_uuid(), {provider: {"VCPU": 1}}))
    # what b had may move to another consumer, though the provider stays over-full
    write(store, set_of(b, {}), set_of(new_uuid(), {provider: {"VCPU": 5}}))
    assert use_of(store, provider) == {"VCPU": 9}


def test_constraints_and_missing_inventories_are_refused_by_name(store: Store) -> None:
    provider = new_provider(store, {"VCPU": InventoryRecord(16, min_unit=2, max_unit=8)})
    with pytest.raises(ConstraintViolated):
        write(store, set_of(new_uuid(), {provider: {"VCPU": 1}}))
    with pytest.raises(InvalidInventoryForAllocation) as refused:
        write(store, set_of(new_uuid(), {provider: {"DISK_GB": 1}}))
    assert refused.value.uuids == (provider,)


def test_fractional_ratios_bound_the_use_exactly(store: Store) -> None:
    provider = new_provider(store, {"VCPU": InventoryRecord(7, reserved=2, allocation_ratio=1.5)})
    write(store, set_of(new_uuid(), {provider: {"VCPU": 7}}))
    with pytest.raises(CapacityExceeded):
        write(store, set_of(new_uuid(), {provider: {"VCPU": 1}}))


def test_inventories_in_use_are_not_removed_and_are_named_by_class_id(store: Store) -> None:
    provider = new_provider(store, {"DISK_GB": 9, "VCPU": 9, "MEMORY_MB": 9})
    write(store, set_of(new_uuid(), {provider: {"DISK_GB": 1, "VCPU": 1}}))
    with pytest.raises(InventoryInUse) as in_use:
        store.write(inventories.delete_all, provider)
    assert in_use.value.resource_classes == ("VCPU", "DISK_GB")
    with pytest.raises(InventoryInUse):
        store.write(inventories.delete_one, provider, "VCPU")
    store.write(inventories.delete_one, provider, "MEMORY_MB")


def test_the_allocations_of_a_provider_come_by_consumer(store: Store) -> None:
    provider, a, b = new_provider(store, {"VCPU": 9, "DISK_GB": 9}), new_uuid(), new_uuid()
    write(
        store, set_of(a, {provider: {"VCPU": 1, "DISK_GB": 2}}), set_of(b, {provider: {"VCPU": 3}})
    )
    _, consumers = store.read(allocations.of_provider, provider)
    found = {c.uuid: {row.resource_class: row.used for row in rows} for c, rows in consumers}
    assert found == {a: {"VCPU": 1, "DISK_GB": 2}, b: {"VCPU": 3}}


def test_odd_characters_in_names_are_stored_as_they_are(store: Store) -> None:
    provider, consumer = new_provider(store, {"VCPU": 8}), "it's 100% \\ odd \u2603"[:36]
    write(store, set_of(consumer, {provider: {"VCPU": 1}}, project="%s'\"\\", user="\u2603"))
    record, rows = store.read(allocations.of_consumer, consumer)
    assert record is not None
    assert (record.uuid, record.project_id, record.user_id) == (consumer, "%s'\"\\", "\u2603")
    assert len(rows) == 1
    store.write(allocations.delete, consumer)


def test_a_large_request_is_written_in_pieces_that_add_up(store: Store) -> None:
    provider = new_provider(store, {"VCPU": 100_000})
    consumers = [set_of(new_uuid(), {provider: {"VCPU": 2}}, None) for _ in range(9000)]
    write(store, *consumers)
    assert use_of(store, provider) == {"VCPU": 18_000}
    write(store, *(set_of(consumer.uuid, {}, 1) for consumer in consumers))
    assert use_of(store, provider) == {"VCPU": 0}


def test_nothing_is_wrong_after_all_of_this(store: Store) -> None:
    assert store.read(audit.audit) == []
