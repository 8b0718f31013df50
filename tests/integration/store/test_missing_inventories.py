"""Allocations of a class of which their provider has no inventory, as older software may leave."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from placement_server.store import audit
from placement_server.store.allocations import allocations, reshape
from placement_server.store.errors import CapacityExceeded, InventoryInUse
from placement_server.store.providers import inventories
from placement_server.store.records import InventoryRecord
from placement_server.store.store import Store
from tests.integration.store.conftest import (
    add_stock,
    generation_of,
    new_provider,
    new_uuid,
    sabotage,
    set_of,
    stock,
    use_of,
)

DISK = {"DISK_GB": InventoryRecord(6)}
ALLOCATE_DISK = (
    "INSERT INTO allocations (resource_provider_id, consumer_id, resource_class_id, used) "
    "SELECT id, :holder, 2, :amount FROM resource_providers WHERE uuid = :host"
)


@pytest.fixture
def holder() -> str:
    return new_uuid()


@pytest.fixture
def host(store: Store, holder: str) -> str:
    """A provider of VCPU 8, of which `holder` has VCPU 1 and, without an inventory, DISK_GB 5."""
    host = new_provider(store, {"VCPU": 8})
    store.write(allocations.write, [set_of(holder, {host: {"VCPU": 1}}, None)])
    sabotage(store, ALLOCATE_DISK, host=host, holder=holder, amount=5)
    return host


def wrong_use(store: Store) -> list[audit.Violation]:
    return [problem for problem in store.read(audit.audit) if problem.check == "use"]


def add(store: Store, host: str) -> None:
    add_stock(store, host, "DISK_GB", DISK["DISK_GB"])


def replace(store: Store, host: str) -> None:
    stock(store, host, generation_of(store, host), {"VCPU": 8, "MEMORY_MB": 8, **DISK})


def shape(store: Store, host: str) -> None:
    records = {"VCPU": InventoryRecord(8), **DISK}
    store.write(reshape.apply, {host: (generation_of(store, host), records)}, [])


@pytest.mark.parametrize("give", [add, replace, shape])
def test_a_new_inventory_is_used_by_the_allocations_that_are_there(
    store: Store, host: str, holder: str, give: Callable[[Store, str], None]
) -> None:
    give(store, host)
    assert wrong_use(store) == []
    with pytest.raises(CapacityExceeded, match=": 1 free"):
        store.write(allocations.write, [set_of(new_uuid(), {host: {"DISK_GB": 2}}, None)])
    with pytest.raises(InventoryInUse):
        store.write(inventories.delete_one, host, "DISK_GB")

    store.write(allocations.write, [set_of(new_uuid(), {host: {"DISK_GB": 1}}, None)])
    store.write(allocations.delete, holder)
    assert use_of(store, host)["DISK_GB"] == 1
    assert wrong_use(store) == []


def test_a_new_inventory_may_be_smaller_than_its_use(store: Store, host: str, holder: str) -> None:
    add_stock(store, host, "DISK_GB", InventoryRecord(3))
    assert wrong_use(store) == []
    assert any(host in line and "5 of 3" in line for line in store.read(audit.over_capacity))
    amounts = {host: {"VCPU": 1, "DISK_GB": 4}}
    store.write(allocations.write, [set_of(holder, amounts)])
    assert wrong_use(store) == []


@pytest.mark.parametrize(
    ("own", "others", "fits"),
    [(6, 0, True), (7, 0, False), (3, 2, True), (3, 3, False), (0, 1, True), (0, 2, False)],
)
def test_a_reshape_counts_what_is_held_of_an_inventory_that_it_adds(
    store: Store, host: str, holder: str, own: int, others: int, fits: bool
) -> None:
    """The holder's 5 are given back where the reshape names it (`own`); where `others` come
    as well, a third consumer, which is not named, has 1."""
    generation, other = generation_of(store, host), new_uuid()
    writes = [set_of(other, {host: {"DISK_GB": others}}, None)] if others else []
    if own:
        writes.append(set_of(holder, {host: {"DISK_GB": own}}))
    if own and others:
        sabotage(store, ALLOCATE_DISK, host=host, holder=new_uuid(), amount=1)
    wanted = {host: (generation, {"VCPU": InventoryRecord(8), **DISK})}
    if fits:
        store.write(reshape.apply, wanted, writes)
        assert wrong_use(store) == []
        return
    with pytest.raises(CapacityExceeded):
        store.write(reshape.apply, wanted, writes)
    assert generation_of(store, host) == generation


def test_what_has_no_inventory_is_given_back_to_none(store: Store, host: str, holder: str) -> None:
    store.write(allocations.delete, holder)
    assert use_of(store, host) == {"VCPU": 0}
    assert wrong_use(store) == []
