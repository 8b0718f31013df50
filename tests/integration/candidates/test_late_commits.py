"""Writes that take longer than readers wait for the id of a note are seen all the same."""

from __future__ import annotations

import sqlite3
import threading
import time

import pytest
import sqlalchemy as sa

from placement_server.candidates.index.follower import GAP_SECONDS, IndexFollower
from placement_server.store.connection.options import StoreOptions
from placement_server.store.errors import StoreUnavailable
from placement_server.store.providers import providers, traits
from placement_server.store.store import Store
from placement_server.store.tables import changes
from placement_server.store.transaction import WriteTransaction
from tests.fixtures.clocks import ManualClock
from tests.integration.candidates.followed_index import total, trait_count
from tests.integration.candidates.writes import create, restock

pytestmark = [pytest.mark.waiting, pytest.mark.usefixtures("several_writers")]

DEADLINE = 30.0


def give_trait(tx: WriteTransaction, name: str) -> None:
    generation = providers.get(tx, name).generation
    traits.replace_of_provider(tx, name, ["HW_NUMA_ROOT"], generation=generation)


def notes(store: Store) -> int:
    count = sa.select(sa.func.count()).select_from(changes)
    return int(store.read(lambda tx: tx.execute(count).scalar_one()))


def test_a_commit_that_comes_after_its_id_was_given_up_is_seen(store: Store) -> None:
    slow, quick = create(store, {"VCPU": 8}), create(store, {"VCPU": 8})
    clock = ManualClock()
    follower = IndexFollower(store, clock=clock)
    follower.index()
    paused = Store.open(store.url, clock=clock)

    def write(tx: WriteTransaction) -> None:
        give_trait(tx, slow)
        tx.append_changes()
        restock(store, quick, {"VCPU": 4})
        assert total(follower, quick) == 4
        clock.now += GAP_SECONDS + 1
        assert trait_count(follower, slow) == 0

    paused.write(write)
    paused.close()
    assert trait_count(follower, slow) == 1


def test_a_late_commit_that_cannot_be_noted_again_is_told(store: Store) -> None:
    name, clock = create(store), ManualClock()
    paused = Store.open(store.url, clock=clock)

    def lose_the_notes(tx: WriteTransaction) -> None:
        give_trait(tx, name)
        clock.now += GAP_SECONDS

    def refuse(connection: sa.Connection, *_: object) -> None:
        if connection.info.get("committed"):
            raise sa.exc.OperationalError("", None, sqlite3.OperationalError("no room"))

    sa.event.listen(paused.engine, "commit", lambda one: one.info.update(committed=True))
    sa.event.listen(paused.engine, "before_cursor_execute", refuse)
    with pytest.raises(StoreUnavailable, match=r"The change was made"):
        paused.write(lose_the_notes)
    paused.close()
    assert trait_count(IndexFollower(store), name) == 1


def test_a_write_that_takes_no_time_is_noted_once(store: Store) -> None:
    name = create(store)
    before = notes(store)
    store.write(give_trait, name)
    assert notes(store) == before + 1


def test_the_database_ends_idle_writes_before_their_ids_are_given_up() -> None:
    assert StoreOptions().write_idle_timeout < GAP_SECONDS


def session_of(tx: WriteTransaction) -> int:
    postgresql = tx.connection.dialect.name == "postgresql"
    question = "SELECT pg_backend_pid()" if postgresql else "SELECT connection_id()"
    return int(tx.connection.exec_driver_sql(question).scalar_one())


def is_there(store: Store, session: int) -> bool:
    question = (
        "SELECT count(*) FROM pg_stat_activity WHERE pid = {}"
        if store.engine.dialect.name == "postgresql"
        else "SELECT count(*) FROM information_schema.processlist WHERE id = {}"
    )
    with store.engine.connect() as connection:
        return bool(connection.exec_driver_sql(question.format(session)).scalar_one())


@pytest.mark.parametrize("then", ["another statement", "the commit"])
def test_the_database_ends_a_write_that_idles_and_it_is_begun_anew(store: Store, then: str) -> None:
    name = create(store)
    idler = Store.open(store.url, options=StoreOptions(write_idle_timeout=1.0))
    sessions: list[int] = []

    def write(tx: WriteTransaction) -> None:
        give_trait(tx, name)
        tx.append_changes()
        sessions.append(session_of(tx))
        if len(sessions) > 1:
            return
        deadline = time.monotonic() + DEADLINE
        while is_there(store, sessions[0]):
            assert time.monotonic() < deadline, "the database lets the session idle for ever"
            threading.Event().wait(0.05)
        if then == "another statement":
            providers.get(tx, name)

    idler.write(write)
    idler.close()
    assert len(set(sessions)) == 2
    assert trait_count(IndexFollower(store), name) == 1
