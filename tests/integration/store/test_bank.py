"""A bank: whatever many clients do at once, nobody gets what is not there, and nothing is lost.

Every consumer belongs to one client, so each client knows exactly what its consumers must hold in
the end. Between them the clients fight for a few units of a few providers.
"""

from __future__ import annotations

import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest
import sqlalchemy as sa

from placement_server.store import audit
from placement_server.store.allocations import allocations, reshape
from placement_server.store.errors import AllocationRefused, InventoryInUse, StaleWrite
from placement_server.store.providers import inventories, providers
from placement_server.store.records import ConsumerWrite, InventoryRecord
from placement_server.store.store import Store
from placement_server.store.tables import inventories as inventories_table
from tests.integration.store.conftest import (
    OPTIONS,
    generation_of,
    new_provider,
    new_uuid,
    set_of,
    use_of,
)

CLIENTS = 6
STEPS = 40
CAPACITY = 12


@dataclass
class Client:
    """Knows what its consumers hold: consumer -> (generation, provider -> class -> amount)."""

    store: Store
    hosts: list[str]
    pool: str
    seed: int
    held: dict[str, tuple[int, dict[str, dict[str, int]]]] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)

    def run(self) -> None:
        chance = random.Random(self.seed)
        for _ in range(STEPS):
            step = chance.choice([self.claim, self.claim, self.claim, self.resize, self.move])
            if chance.random() < 0.25:
                step = chance.choice([self.release, self.shrink_and_grow, self.reshape])
            step(chance)

    def amounts(self, chance: random.Random) -> dict[str, dict[str, int]]:
        return {
            chance.choice(self.hosts): {"VCPU": chance.randint(1, 4)},
            self.pool: {"DISK_GB": chance.randint(1, 4)},
        }

    def write(self, *writes: ConsumerWrite) -> bool:
        try:
            self.store.write(allocations.write, writes)
        except AllocationRefused as error:
            self.refused[type(error).__name__] += 1
            return False
        for write in writes:
            generation = self.held.pop(write.uuid, (0, {}))[0]
            if write.allocations:
                sets = {uuid: dict(amounts) for uuid, amounts in write.allocations.items()}
                self.held[write.uuid] = (generation + 1, sets)
        return True

    def claim(self, chance: random.Random) -> None:
        self.write(set_of(new_uuid(), self.amounts(chance), None))

    def resize(self, chance: random.Random) -> None:
        if self.held:
            consumer = chance.choice(sorted(self.held))
            self.write(set_of(consumer, self.amounts(chance), self.held[consumer][0]))

    def move(self, chance: random.Random) -> None:
        """Hand everything of one consumer to a new one, and something else to a third."""
        if self.held:
            consumer = chance.choice(sorted(self.held))
            generation, sets = self.held[consumer]
            self.write(
                set_of(consumer, {}, generation),
                set_of(new_uuid(), sets, None),
                set_of(new_uuid(), self.amounts(chance), None),
            )

    def release(self, chance: random.Random) -> None:
        if self.held:
            consumer = chance.choice(sorted(self.held))
            self.store.write(allocations.delete, consumer)
            del self.held[consumer]

    def shrink_and_grow(self, chance: random.Random) -> None:
        host = chance.choice(self.hosts)
        for total in (chance.randint(1, CAPACITY), CAPACITY):
            try:
                self.store.write(
                    inventories.update_one,
                    host,
                    "VCPU",
                    InventoryRecord(total),
                    generation=generation_of(self.store, host),
                    reserved_may_equal_total=True,
                )
            except StaleWrite as error:
                self.refused[type(error).__name__] += 1

    def reshape(self, chance: random.Random) -> None:
        """Put the same inventory anew under one of the client's own consumers."""
        host = chance.choice(self.hosts)
        consumer = chance.choice(sorted(self.held)) if self.held else new_uuid()
        generation = self.held[consumer][0] if self.held else None
        sets = {host: {"VCPU": 1}}
        try:
            self.store.write(
                reshape.apply,
                {host: (generation_of(self.store, host), {"VCPU": InventoryRecord(CAPACITY)})},
                [set_of(consumer, sets, generation)],
            )
        except (StaleWrite, AllocationRefused, InventoryInUse) as error:
            self.refused[type(error).__name__] += 1
        else:
            self.held[consumer] = ((generation or 0) + 1, sets)


def test_many_clients_never_get_more_than_there_is_and_lose_nothing(
    migrated_database_url: str,
) -> None:
    store = Store.open(migrated_database_url, options=OPTIONS)
    hosts = [new_provider(store, {"VCPU": CAPACITY}) for _ in range(3)]
    pool = new_provider(store, {"DISK_GB": 40})
    stores = [Store.open(migrated_database_url, options=OPTIONS) for _ in range(CLIENTS)]
    clients = [Client(own, hosts, pool, seed) for seed, own in enumerate(stores)]
    generations = {uuid: generation_of(store, uuid) for uuid in [*hosts, pool]}
    with ThreadPoolExecutor(CLIENTS) as threads:
        for finished in [threads.submit(client.run) for client in clients]:
            finished.result()

    assert store.read(audit.audit) == []
    # the pool never shrank, so it was never over-full
    assert use_of(store, pool)["DISK_GB"] <= 40
    expected: dict[str, Counter[str]] = {uuid: Counter() for uuid in [*hosts, pool]}
    for client in clients:
        for consumer, (generation, sets) in client.held.items():
            record, rows = store.read(allocations.of_consumer, consumer)
            assert record is not None
            assert record.generation == generation
            found: dict[str, dict[str, int]] = {}
            for row in rows:
                found.setdefault(row.provider_uuid, {})[row.resource_class] = row.used
            assert found == sets
            for uuid, amounts in sets.items():
                expected[uuid].update(amounts)
    for uuid, amounts in expected.items():
        assert {name: n for name, n in use_of(store, uuid).items() if n} == dict(amounts)
        assert generation_of(store, uuid) > generations[uuid]
    assert sum(client.refused["CapacityExceeded"] for client in clients) > 0, "nobody fought"
    for opened in [store, *stores]:
        opened.close()


@pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])
def test_claims_fill_a_provider_to_the_last_unit_without_a_needless_conflict(
    migrated_database_url: str, shared: bool
) -> None:
    """While there is room every claim succeeds at its first try; then every one is refused."""
    store = Store.open(migrated_database_url, options=OPTIONS)
    host = new_provider(store, {"VCPU": 60})
    pool = new_provider(store, {"DISK_GB": 1000})
    stores = [Store.open(migrated_database_url, options=OPTIONS) for _ in range(CLIENTS)]

    def fill(store: Store) -> tuple[int, int]:
        granted = refused = 0
        for _ in range(20):
            amounts = {host: {"VCPU": 1}} | ({pool: {"DISK_GB": 1}} if shared else {})
            try:
                store.write(allocations.write, [set_of(new_uuid(), amounts, None)])
            except AllocationRefused:
                refused += 1
            else:
                granted += 1
        return granted, refused

    with ThreadPoolExecutor(CLIENTS) as threads:
        results = list(threads.map(fill, stores))
    assert sum(granted for granted, _ in results) == 60
    assert sum(refused for _, refused in results) == CLIENTS * 20 - 60
    assert use_of(store, host) == {"VCPU": 60}
    assert generation_of(store, host) == 61
    numbers = store.read(
        lambda tx: tx.execute(
            sa.select(inventories_table.c.used, inventories_table.c.capacity)
        ).all()
    )
    assert all(used <= capacity for used, capacity in numbers)
    assert store.read(audit.audit) == []
    assert len(store.read(providers.find)) == 2
    for opened in [store, *stores]:
        opened.close()
