"""Writes that the tests of the follower begin with."""

from __future__ import annotations

import uuid

from placement_server.store.allocations import allocations
from placement_server.store.providers import inventories, providers
from placement_server.store.records import ANY, ConsumerWrite, InventoryRecord
from placement_server.store.store import Store


def create(store: Store, stock: dict[str, int] | None = None, parent: str | None = None) -> str:
    name = str(uuid.uuid4())
    store.write(providers.create, uuid=name, name=name, parent_uuid=parent)
    if stock:
        restock(store, name, stock)
    return name


def restock(store: Store, name: str, stock: dict[str, int]) -> None:
    store.write(
        inventories.replace,
        name,
        generation=store.read(providers.get, name).generation,
        records={
            resource_class: InventoryRecord(total=total) for resource_class, total in stock.items()
        },
        reserved_may_equal_total=True,
    )


def claim(store: Store, consumer: str, wanted: dict[str, dict[str, int]]) -> None:
    store.write(allocations.write, [ConsumerWrite(consumer, wanted, "p", "u", None, ANY)])
