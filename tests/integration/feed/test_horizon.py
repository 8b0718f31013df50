"""The end of the final changes while transactions commit in another order than that of their ids.

Transactions are held open in the middle; what a process knows is its Horizon.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from placement_server.feed import horizon as horizon_module
from placement_server.feed.horizon import LEAP, Horizon
from placement_server.feed.service import ALL_KINDS
from placement_server.store.changes import changes
from placement_server.store.providers import providers
from placement_server.store.store import Store
from placement_server.store.tables import changes as changes_table
from placement_server.store.transaction import NAMES, VOID, WriteTransaction

pytestmark = pytest.mark.waiting

DEADLINE = 30.0


class RolledBackError(Exception):
    pass


def create(tx: WriteTransaction) -> str:
    name = str(uuid.uuid4())
    providers.create(tx, uuid=name, name=name)
    return name


def listed(store: Store, after: int, upto: int) -> list[str | None]:
    found = store.read(changes.page, after, upto, kinds=ALL_KINDS, roots=None, most=1000)
    return [change.root_uuid for change in found]


def insert(store: Store, number: int, at: datetime | None = None) -> None:
    """A record with an id that was not assigned in turn."""
    with store.engine.begin() as connection:
        connection.execute(
            sa.insert(changes_table).values(
                id=number,
                created_at=(at or datetime.now(UTC)).replace(tzinfo=None, microsecond=0),
                root_provider_id=0,
                kind=NAMES,
                write_id=1,
            )
        )


def until_settled(horizon: Horizon, number: int) -> None:
    waited = threading.Event()
    for _ in range(int(DEADLINE / 0.02)):
        if horizon.advance().settled_id >= number:
            return
        waited.wait(0.02)
    raise AssertionError(f"{horizon.advance()} does not come to {number}")


def voided(store: Store) -> list[int]:
    statement = sa.select(changes_table.c.id).where(changes_table.c.kind == VOID)
    return list(store.read(lambda tx: tx.execute(statement).scalars()))


def kept_open(store: Store, then: Callable[[], None]) -> str:
    """Create a provider in a transaction that stays open, with its record, during a call."""

    def write(tx: WriteTransaction) -> str:
        name = create(tx)
        tx.append_changes()
        then()
        return name

    return store.write(write)


@pytest.mark.usefixtures("several_writers")
def test_a_later_id_is_held_back_until_the_smaller_one_is_committed(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(horizon_module, "LATE", 0.0)
    caplog.set_level(logging.INFO)
    horizon = Horizon(store)
    start = horizon.settle().settled_id
    later: list[str] = []

    def meanwhile() -> None:
        later.append(store.write(create))
        for _ in range(3):
            position = horizon.advance()
            assert (position.settled_id, position.last) == (start, start + 2)

    first = kept_open(store, meanwhile)
    assert f"for change {start + 1}, which" in caplog.text
    assert "goes on" not in caplog.text
    assert horizon.settle().settled_id == start + 2
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "goes on" in caplog.text
    assert listed(store, start, start + 2) == [first, *later]
    assert voided(store) == []


@pytest.mark.usefixtures("several_writers")
def test_the_first_ids_of_a_database_that_was_taken_over_are_held_back_too(store: Store) -> None:
    # as the migration leaves a database of OpenStack Placement
    with store.engine.begin() as connection:
        connection.execute(sa.delete(changes_table))
    store.synchronise_standard_names()
    start = Horizon(store).settle().settled_id

    def meanwhile() -> None:
        store.write(create)
        assert Horizon(store).advance().settled_id == start

    kept_open(store, meanwhile)
    assert Horizon(store).settle().settled_id == start + 2


@pytest.mark.usefixtures("several_writers")
def test_an_id_whose_transaction_is_slow_is_waited_for(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(horizon_module, "GRACE", 0.0)
    horizon = Horizon(store)
    start = horizon.settle().settled_id

    def meanwhile() -> None:
        store.write(create)
        horizon.advance()
        # this one would void the id, and is refused
        assert horizon.advance().settled_id == start

    kept_open(store, meanwhile)
    assert horizon.settle().settled_id == start + 2
    assert voided(store) == []


@pytest.mark.usefixtures("several_writers")
def test_an_id_that_was_rolled_back_is_voided_for_all(store: Store) -> None:
    horizon = Horizon(store)
    start = horizon.settle().settled_id

    def fail() -> None:
        raise RolledBackError

    with pytest.raises(RolledBackError):
        kept_open(store, fail)
    created = store.write(create)
    until_settled(horizon, start + 2)
    assert listed(store, start, start + 2) == [created]
    assert voided(store) == [start + 1]
    assert Horizon(store).advance().settled_id == start + 2


@pytest.mark.usefixtures("several_writers")
def test_a_request_waits_for_ids_that_were_rolled_back(store: Store) -> None:
    start = Horizon(store).settle().settled_id
    with pytest.raises(RolledBackError):
        kept_open(store, lambda: (_ for _ in ()).throw(RolledBackError))
    store.write(create)
    begun = threading.Event()
    assert Horizon(store).settle(begun.set).settled_id == start + 2
    assert begun.is_set()


def test_a_writer_whose_id_was_voided_begins_again(store: Store) -> None:
    horizon = Horizon(store)
    start = horizon.settle().settled_id
    insert(store, start + 3)
    until_settled(horizon, start + 3)
    assert voided(store) == [start + 1, start + 2]
    # PostgreSQL draws the numbers that were voided first
    created = store.write(create)
    assert listed(store, start + 3, horizon.settle().settled_id) == [created]


def test_a_leap_of_the_counter_is_passed_when_what_is_behind_it_is_old(store: Store) -> None:
    start = Horizon(store).settle().settled_id
    insert(store, start + LEAP + 2)
    insert(store, start + LEAP + 4, datetime.now(UTC) - changes.AWAITED_FOR)
    waiting = Horizon(store)
    until = waiting.advance
    assert until().settled_id == start
    with store.engine.begin() as connection:
        connection.execute(
            sa.update(changes_table)
            .where(changes_table.c.id == start + LEAP + 2)
            .values(created_at=datetime.now(UTC) - changes.AWAITED_FOR - timedelta(seconds=1))
        )
    until_settled(waiting, start + LEAP + 4)
    assert voided(store) == [start + LEAP + 3]


def test_a_process_that_slept_while_records_were_pruned_begins_again(store: Store) -> None:
    horizon = Horizon(store)
    start = horizon.settle().settled_id
    for _ in range(3):
        store.write(create)
    with store.engine.begin() as connection:
        connection.execute(sa.delete(changes_table).where(changes_table.c.id <= start + 2))
    assert horizon.advance().settled_id == start + 3
    assert voided(store) == []


def test_writers_at_the_same_time_are_listed_once_and_in_order(store: Store) -> None:
    horizon = Horizon(store)
    start = after = horizon.settle().settled_id
    names: list[str | None] = []
    with ThreadPoolExecutor(6) as pool:
        writes = [pool.submit(store.write, create) for _ in range(60)]
        while not all(write.done() for write in writes):
            settled = horizon.advance().settled_id
            names += listed(store, after, settled)
            after = settled
    names += listed(store, after, horizon.settle().settled_id)
    assert names == listed(store, start, horizon.settle().settled_id)
    assert sorted(map(str, names)) == sorted(write.result() for write in writes)
