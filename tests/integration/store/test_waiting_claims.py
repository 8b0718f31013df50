"""Claims that want the same rows: who waits, for what, and what is taken meanwhile."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa
from msgspec.structs import replace

from placement_server.store import audit
from placement_server.store.allocations import allocations
from placement_server.store.dialects.batches import InventoryUpdate, Rise
from placement_server.store.errors import AllocationRefused, ConcurrentUpdate
from placement_server.store.providers import inventory_rows, providers
from placement_server.store.records import InventoryRecord
from placement_server.store.store import Store
from placement_server.store.tables import changes, resource_providers
from placement_server.store.transaction import WriteTransaction
from tests.integration.store.conftest import (
    OPTIONS,
    generation_of,
    new_provider,
    new_uuid,
    opened,
    restock,
    set_of,
    stock,
    use_of,
)
from tests.integration.store.held_locks import held, hold_inventories
from tests.integration.store.interleaving import DEADLINE, Sessions, deadlocks_of, listening

CLIENTS = 6
STEPS = 25


def claim(store: Store, *hosts: str) -> None:
    """One unit of each, in the order of `hosts`."""
    amounts = {host: {"VCPU": 1} for host in hosts}
    store.write(allocations.write, [set_of(new_uuid(), amounts, None)])


def hold_provider(tx: WriteTransaction, host: str) -> None:
    columns = resource_providers.c
    tx.execute(sa.select(columns.id).where(columns.uuid == host).with_for_update()).all()


def note_of(store: Store, host: str) -> int:
    """The number of the newest note of a tree."""
    newest = sa.select(sa.func.max(changes.c.id)).where(
        changes.c.root_provider_id
        == sa.select(resource_providers.c.root_provider_id)
        .where(resource_providers.c.uuid == host)
        .scalar_subquery()
    )
    return int(store.read(lambda tx: tx.execute(newest).scalar_one()))


@pytest.mark.parametrize("hold", [hold_inventories, hold_provider])
@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
def test_a_claim_takes_its_number_in_the_feed_when_it_waits_for_nothing_more(
    sessions: Sessions, hold: Callable[[WriteTransaction, str], None], many: bool
) -> None:
    """So the feed awaits a missing number for as long as a commit takes, not all waiting."""
    if sessions.family == "sqlite":
        pytest.skip("on SQLite a write waits before it begins")
    wanted = new_provider(sessions.first, {"VCPU": 9})
    also = [new_provider(sessions.first, {"VCPU": 9}) for _ in range(12 if many else 0)]
    free = new_provider(sessions.first, {"VCPU": 9})
    # or the second of the two would wait for the first to make their project
    claim(sessions.first, free)
    with ThreadPoolExecutor(1) as pool:
        with held(sessions.first, hold, wanted):
            waiting = pool.submit(claim, sessions.second, wanted, *also)
            sessions.await_lock(waiting)
            claim(sessions.first, free)
        waiting.result(DEADLINE)
    assert note_of(sessions.first, free) < note_of(sessions.first, wanted)


def test_a_claim_that_lost_its_last_race_says_for_what(
    sessions: Sessions, module_database_url: str
) -> None:
    if sessions.family == "sqlite":
        pytest.skip("on SQLite nobody can be faster")
    host = new_provider(sessions.first, {"VCPU": 9})
    claim(sessions.first, host)
    raced: list[str] = []

    def be_faster(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if "UPDATE inventories" in statement and not raced:
            raced.append(statement)
            restock(sessions.first, host, "VCPU", InventoryRecord(9, step_size=3), 2)

    with (
        opened(module_database_url, replace(OPTIONS, claim_tries=1)) as hasty,
        listening(hasty, "before_cursor_execute", be_faster),
        pytest.raises(ConcurrentUpdate) as lost,
    ):
        claim(hasty, host)
    assert lost.value.uuids == (host,)
    assert f"VCPU of {host}" in str(lost.value)


class Enough(Exception):
    """Undoes a transaction."""


@pytest.mark.parametrize("lost", ["inventory", "provider"])
@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
def test_a_write_that_lost_its_race_takes_no_number_in_the_feed(
    store: Store, lost: str, many: bool
) -> None:
    """Each missing number is asked for before every search, for a minute."""
    hosts = [new_provider(store, {"VCPU": 9}) for _ in range(3 if many else 1)]
    claim(store, *hosts)
    before = note_of(store, hosts[-1])

    def lose(tx: WriteTransaction) -> None:
        changes, rises = [], []
        for host in hosts:
            (inventory,) = inventory_rows.hold(tx, host).values()
            delta = 99 if lost == "inventory" and host == hosts[-1] else 1
            root_id = 0 if lost == "provider" and host == hosts[-1] else inventory.provider_id
            key = (inventory.provider_id, inventory.class_id)
            changes.append(InventoryUpdate(inventory.id, *key, delta))
            rises.append(Rise(inventory.provider_id, root_id, is_raised=True))
        settled = tx.settle(changes, rises)
        assert settled.change_id is None
        assert settled.changed_inventories == len(hosts) - (lost == "inventory")
        assert settled.found_providers == (len(hosts) - 1 if lost == "provider" else 0)
        raise Enough

    with pytest.raises(Enough):
        store.write(lose)
    claim(store, hosts[0])
    assert note_of(store, hosts[0]) == before + 1


def insist(store: Store, function: Callable[..., object], *args: Any, **more: Any) -> None:
    """Write, over and over when others were faster every time."""
    while True:
        try:
            store.write(function, *args, **more)
        except ConcurrentUpdate:
            continue
        return


def test_claims_of_a_shared_pool_and_of_each_others_hosts_never_deadlock(
    migrated_database_url: str,
) -> None:
    """In any order of the request, while the pool moves from tree to tree and others end."""
    stores = [Store.open(migrated_database_url, options=OPTIONS) for _ in range(CLIENTS + 2)]
    *clients, mover, ender = stores
    # the pool's row lies between those of the hosts
    hosts = [new_provider(mover, {"VCPU": 9999})]
    pool = new_provider(mover, {"VCPU": 9999})
    hosts += [new_provider(mover, {"VCPU": 9999}) for _ in range(2)]
    # making one project at once is another race, which MySQL ends by a deadlock
    claim(mover, hosts[0])
    done = threading.Event()
    # each moves or ends once for a claim, or it would do so a dozen times while a claim waits
    mover_turns, ender_turns = threading.Semaphore(0), threading.Semaphore(0)

    def give_turns() -> None:
        mover_turns.release()
        ender_turns.release()

    def work(store: Store, seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(STEPS):
            wanted = [pool, *chance.sample(hosts, 2)]
            chance.shuffle(wanted)
            amounts = {uuid: {"VCPU": 1} for uuid in wanted}
            insist(store, allocations.write, [set_of(new_uuid(), amounts, None)])
            give_turns()

    def move() -> int:
        moves = 0
        while mover_turns.acquire() and not done.is_set():
            for parent in (hosts[0], None, hosts[2], None):
                moves += 1
                insist(
                    mover,
                    providers.update,
                    pool,
                    name=f"pool-{moves}",
                    parent_uuid=parent,
                    reparenting_allowed=True,
                )
        return moves

    def end() -> int:
        """Make a host in the tree that the pool moves to, claim both, give back, end the host."""
        ended = 0
        while ender_turns.acquire() and not done.is_set():
            guest, consumer = new_uuid(), new_uuid()
            insist(ender, providers.create, uuid=guest, name=guest, parent_uuid=hosts[2])
            stock(ender, guest, 0, {"VCPU": 9})
            amounts = {uuid: {"VCPU": 1} for uuid in (guest, pool, hosts[0])}
            insist(ender, allocations.write, [set_of(consumer, amounts, None)])
            insist(ender, allocations.delete, consumer)
            insist(ender, providers.delete, guest)
            ended += 1
        return ended

    with deadlocks_of(stores) as deadlocks, ThreadPoolExecutor(len(stores)) as threads:
        others = [threads.submit(move), threads.submit(end)]
        try:
            list(threads.map(work, clients, range(CLIENTS)))
        finally:
            done.set()
            give_turns()
        assert all(other.result(DEADLINE) > 0 for other in others)
    assert deadlocks == []
    assert use_of(mover, pool) == {"VCPU": CLIENTS * STEPS}
    assert mover.read(audit.audit) == []
    for store in stores:
        store.close()


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
    assert store.read(audit.over_capacity) == []
    assert store.read(audit.audit) == []
    assert len(store.read(providers.find)) == 2
    for open_store in [store, *stores]:
        open_store.close()


def test_new_values_of_inventories_wait_for_no_other_provider(migrated_database_url: str) -> None:
    """Also where the table is so small that a database may read, and lock, all of it."""
    if migrated_database_url.startswith("sqlite"):
        pytest.skip("on SQLite a write waits before it begins")
    amounts = dict.fromkeys(("VCPU", "MEMORY_MB", "DISK_GB"), 9)
    with opened(migrated_database_url) as store, ThreadPoolExecutor(1) as pool:
        wanted, locked = new_provider(store, amounts), new_provider(store, amounts)
        with held(store, hold_inventories, locked):
            more = dict.fromkeys(amounts, 12)
            pool.submit(stock, store, wanted, 1, more).result(DEADLINE)
