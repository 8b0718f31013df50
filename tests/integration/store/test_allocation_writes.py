"""Writes of allocations on every database, as far as the model of them does not show it."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from placement_server.store import audit
from placement_server.store.allocations import allocations, reshape
from placement_server.store.errors import (
    ConsumerGenerationConflict,
    InventoryInUse,
    ProviderNotFound,
    ReshapeGenerationConflict,
    ReshapeProviderNotFound,
    ResourceClassNotFound,
    StoreError,
)
from placement_server.store.records import ConsumerWrite, InventoryRecord
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


def test_a_large_request_is_written_in_pieces_that_add_up(store: Store) -> None:
    provider = new_provider(store, {"VCPU": 100_000})
    consumers = [set_of(new_uuid(), {provider: {"VCPU": 2}}, None) for _ in range(9000)]
    write(store, *consumers)
    assert use_of(store, provider) == {"VCPU": 18_000}
    write(store, *(set_of(consumer.uuid, {}, 1) for consumer in consumers))
    assert use_of(store, provider) == {"VCPU": 0}


def test_refusals_of_a_reshape_come_in_the_order_of_the_request(store: Store) -> None:
    one, two = new_provider(store, {"VCPU": 4}), new_provider(store, {"VCPU": 4})
    holder, unknown = new_uuid(), new_uuid()
    store.write(allocations.write, [set_of(holder, {one: {"VCPU": 1}, two: {"VCPU": 1}}, None)])
    before = [generation_of(store, p) for p in (one, two)]
    stale = set_of(holder, {one: {"VCPU": 1}}, 9)
    nowhere = set_of(new_uuid(), {unknown: {"CUSTOM_NONE": 1}})

    def refused(
        error: type[StoreError],
        wanted: dict[str, tuple[int, dict[str, InventoryRecord]]],
        *writes: ConsumerWrite,
    ) -> StoreError:
        with pytest.raises(error) as caught:
            store.write(reshape.apply, wanted, writes)
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
