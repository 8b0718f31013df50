"""Statements that are executed again and again: prepared, they do what they did before."""

from __future__ import annotations

import os
import signal
import threading
import time
from datetime import datetime
from typing import Any

import pytest
import sqlalchemy as sa
from msgspec.structs import replace
from sqlalchemy import QueuePool, bindparam, select
from sqlalchemy.exc import DBAPIError

from placement_server.store.dialects import plain, prepared
from placement_server.store.dialects.plain import PlainSelect
from placement_server.store.dialects.prepared import QuickConnection
from placement_server.store.engine import create_engines
from placement_server.store.errors import ConcurrentUpdate, StoreUnavailable
from placement_server.store.providers import inventory_rows
from placement_server.store.store import Store
from placement_server.store.tables import resource_providers
from placement_server.store.transaction import ReadTransaction, WriteTransaction
from tests.integration.store.conftest import OPTIONS, new_provider, opened
from tests.integration.store.held_locks import held

pytestmark = pytest.mark.parametrize(
    "module_database_url", ["postgresql"], indirect=True, scope="module"
)

TIMES = 10
"""Executions after which a statement is prepared for sure."""

VALUES: list[tuple[object, object]] = [
    (1, "a"),
    (2**62, "größe \N{GRINNING FACE}"),
    (-1, "'; DROP TABLE traits; -- %s $1 \\"),
    (None, "x" * 70_000),
    (3, None),
    (datetime(2026, 1, 2, 3, 4, 5), "\n"),
]

PREPARED_NAMES = "SELECT name FROM pg_prepared_statements"
INSERT = "INSERT INTO traits (name) VALUES (%s)"
BY_UUID = select(resource_providers).where(resource_providers.c.uuid == bindparam("uuid"))


def prepared_names(connection: Any) -> set[str]:
    found_rows = connection.exec_driver_sql(PREPARED_NAMES)
    return {name for (name,) in found_rows if name.startswith("frequent_")}


def count_of_traits(store: Store, name: str) -> int:
    text = "SELECT count(*) FROM traits WHERE name = %s"
    ((count,),) = store.read_single(lambda tx: plain.rows(tx.connection, text, (name,)))
    return int(count)


def test_engines_keep_their_limits_after_a_rollback_and_leave_no_connection(
    module_database_url: str,
) -> None:
    engines = create_engines(module_database_url, OPTIONS)
    pools = []
    for engine in (engines.reader, engines.writer, engines.single):
        assert engine is not None
        with engine.connect() as connection:
            for _ in range(2):
                assert connection.exec_driver_sql("SHOW statement_timeout").scalar() == "1min"
                connection.rollback()
        assert isinstance(engine.pool, QueuePool)
        pools.append(engine.pool)
    assert [pool.checkedin() for pool in pools] == [1, 1, 1]
    engines.dispose()
    assert [pool.checkedin() for pool in pools] == [0, 0, 0]


def test_a_frequent_statement_returns_the_rows_of_a_cursor(store: Store) -> None:
    text = "SELECT %s AS one, %s::text AS other, 0.5::float8, NULL, ARRAY[1, 2], true"

    def read(tx: ReadTransaction) -> None:
        for _ in range(TIMES):
            for values in VALUES:
                expected = tx.connection.exec_driver_sql(text, values).all()
                found = plain.rows(tx.connection, text, values)
                assert found == list(map(tuple, expected))
                assert [*map(type, found[0])] == [*map(type, expected[0])]
        assert prepared_names(tx.connection)

    store.read_single(read)


def test_a_frequent_statement_takes_values_by_name(store: Store) -> None:
    uuids = [new_provider(store) for _ in range(2)]
    by_uuid = PlainSelect(BY_UUID)

    def read(tx: ReadTransaction) -> None:
        before = prepared_names(tx.connection)
        for _ in range(TIMES):
            for uuid in uuids:
                ((_, *columns),) = [by_uuid.rows(tx.connection, {"uuid": uuid})[0][2:]]
                assert uuid in (str(column) for column in columns)
        assert prepared_names(tx.connection) > before

    store.read_single(read)


def test_a_frequent_change_says_how_many_rows_it_changed(store: Store) -> None:
    text = "UPDATE traits SET name = name WHERE id < %s"

    def write(tx: WriteTransaction) -> list[int]:
        return [plain.count(tx.connection, text, (number,)) for number in range(TIMES)]

    assert store.write(write) == [max(0, number - 1) for number in range(TIMES)]
    assert store.write(lambda tx: prepared_names(tx.connection))


def test_a_frequent_statement_that_is_refused_is_executed_once(store: Store) -> None:
    with store.engine.begin() as connection:
        connection.exec_driver_sql("CREATE SEQUENCE counted")

    def read(tx: ReadTransaction) -> int:
        text = "SELECT 1 / (%s - nextval('counted'))"
        for _ in range(TIMES):
            plain.rows(tx.connection, text, (1000,))
        with pytest.raises(DBAPIError, match="division by zero") as failure:
            plain.rows(tx.connection, text, (TIMES + 1,))
        assert failure.value.orig.sqlstate == "22012"  # type: ignore[union-attr]
        ((number,),) = plain.rows(tx.connection, "SELECT nextval('counted')", ())
        return int(number)

    assert store.read_single(read) == TIMES + 2


def test_a_frequent_read_on_a_connection_that_broke_is_repeated_on_another(store: Store) -> None:
    uuid = new_provider(store)
    for _ in range(TIMES):
        assert store.read_single(inventory_rows.of_provider, uuid) == (0, {})
    backend, names = store.read_single(
        lambda tx: (
            plain.rows(tx.connection, "SELECT pg_backend_pid()", ())[0][0],
            prepared_names(tx.connection),
        )
    )
    assert names
    ended = "SELECT pg_terminate_backend(%s::integer, 30000)"
    assert store.read(lambda tx: plain.rows(tx.connection, ended, (backend,))[0][0])
    assert store.read_single(inventory_rows.of_provider, uuid) == (0, {})


def insert(tx: WriteTransaction, *names: str, fails: bool = False) -> None:
    for name in names:
        plain.count(tx.connection, INSERT, (name,))
    if fails:
        raise LookupError(names)


def test_a_frequent_first_statement_of_a_write_is_part_of_it(store: Store) -> None:
    for number in range(TIMES):
        store.write(insert, f"CUSTOM_FIRST_{number}")
    with pytest.raises(LookupError):
        store.write(insert, "CUSTOM_ROLLED_BACK", fails=True)
    assert not count_of_traits(store, "CUSTOM_ROLLED_BACK")


@pytest.mark.parametrize("level", ["repeatable read", "read committed"])
def test_a_frequent_first_statement_begins_a_transaction_of_the_level_of_its_engine(
    store: Store, level: str
) -> None:
    text = "SELECT name FROM traits WHERE name = %s"
    run: Any = store.read if level == "repeatable read" else store.write

    def read_twice(tx: ReadTransaction, name: str) -> list[bool]:
        found = [bool(plain.rows(tx.connection, text, (name,)))]
        ((actual,),) = plain.rows(tx.connection, "SHOW transaction_isolation", ())
        assert actual == level
        with store.engine.begin() as other:
            other.exec_driver_sql(INSERT, (name,))
        return [*found, bool(plain.rows(tx.connection, text, (name,)))]

    for number in range(TIMES):
        name = f"CUSTOM_{level.upper().replace(' ', '_')}_{number}"
        assert run(read_twice, name) == [False, level == "read committed"]
    assert run(lambda tx: prepared_names(tx.connection))


def test_a_commit_that_is_refused_leaves_nothing_and_ends_its_transaction(store: Store) -> None:
    with store.engine.begin() as connection:
        connection.exec_driver_sql(
            "CREATE TABLE checked_late (id int UNIQUE DEFERRABLE INITIALLY DEFERRED)"
        )

    def write(tx: WriteTransaction, number: int) -> None:
        tries.append(number)
        plain.count(tx.connection, "INSERT INTO checked_late VALUES (%s)", (number,))

    tries: list[int] = []
    for number in range(TIMES):
        store.write(write, number)
    tries.clear()
    with pytest.raises(ConcurrentUpdate):
        store.write(write, 0)
    assert len(tries) > 1
    store.write(write, TIMES)
    count = "SELECT count(*) FROM checked_late"
    assert store.read(lambda tx: plain.rows(tx.connection, count, ())) == [(TIMES + 1,)]


@pytest.mark.parametrize("running", ["read", "write"])
def test_a_commit_that_was_cancelled_before_it_began_fails_alone(
    module_database_url: str, monkeypatch: pytest.MonkeyPatch, running: str
) -> None:
    run = prepared._run
    cancelled: list[bytes] = []

    def cancel_once(connection: QuickConnection, command: bytes) -> None:
        if command == b"COMMIT" and not cancelled:
            cancelled.append(command)
            command = b"SELECT pg_cancel_backend(pg_backend_pid()); COMMIT"
        run(connection, command)

    with opened(module_database_url) as store:
        work: Any = getattr(store, running)
        text = "SELECT count(*) FROM traits"
        monkeypatch.setattr(prepared, "_run", cancel_once)
        with pytest.raises(StoreUnavailable, match="nothing was changed"):
            work(lambda tx: plain.rows(tx.connection, text, ()))
        assert cancelled
        for _ in range(TIMES):
            assert work(lambda tx: plain.rows(tx.connection, text, ()))


def test_a_write_on_a_connection_that_broke_is_repeated_on_another(store: Store) -> None:
    def write(tx: WriteTransaction, name: str) -> int:
        insert(tx, name)
        return int(plain.rows(tx.connection, "SELECT pg_backend_pid()", ())[0][0])

    backends = {store.write(write, f"CUSTOM_WHOLE_{number}") for number in range(TIMES)}
    assert len(backends) == 1
    ended = "SELECT pg_terminate_backend(%s::integer, 30000)"
    assert store.read(lambda tx: plain.rows(tx.connection, ended, (*backends,))[0][0])
    assert store.write(write, "CUSTOM_BROKEN") not in backends
    assert count_of_traits(store, "CUSTOM_BROKEN") == 1


def test_a_write_after_one_that_was_rolled_back_is_made_at_the_first_try(store: Store) -> None:
    store.write(insert, *(f"CUSTOM_BEFORE_{number}" for number in range(TIMES)))
    with pytest.raises(LookupError):
        store.write(insert, "CUSTOM_A", fails=True)
    tries = []

    def write(tx: WriteTransaction) -> None:
        tries.append(tx)
        insert(tx, "CUSTOM_A", "CUSTOM_B")

    store.write(write)
    assert len(tries) == 1
    assert count_of_traits(store, "CUSTOM_B") == 1


def test_a_failed_read_of_a_whole_table_leaves_the_form_of_others_as_it_was(store: Store) -> None:
    with store.engine.begin() as connection:
        connection.exec_driver_sql("CREATE SEQUENCE falling")

    def read(tx: ReadTransaction) -> object:
        text = f"SELECT 1 / ({TIMES} - nextval('falling'))"
        for _ in range(TIMES - 1):
            plain.whole_rows(tx.connection, text)
        assert prepared_names(tx.connection)
        with pytest.raises(DBAPIError, match="division by zero"):
            plain.whole_rows(tx.connection, text)
        return plain.rows(tx.connection, "SELECT 'traits'::regclass", ())

    assert store.read_single(read) == [("traits",)]


def test_an_operator_can_interrupt_a_frequent_statement_that_waits(
    store: Store, module_database_url: str
) -> None:
    name, waits = "CUSTOM_WAITED_FOR", "SELECT count(*) FROM pg_locks WHERE NOT granted"
    store.write(insert, name)

    def lock(tx: WriteTransaction, name: str) -> None:
        plain.rows(tx.connection, "SELECT id FROM traits WHERE name = %s FOR UPDATE", (name,))

    def interrupt() -> None:
        while not ended.is_set():
            if store.read(lambda tx: plain.rows(tx.connection, waits, ())[0][0]):
                os.kill(os.getpid(), signal.SIGINT)
                return

    ended = threading.Event()
    options = replace(OPTIONS.for_maintenance(), lock_timeout=20.0)
    with opened(module_database_url, options) as commands:
        for _ in range(TIMES):
            commands.write(lock, name)
        with held(store, lock, name):
            threading.Thread(target=interrupt, daemon=True).start()
            start = time.monotonic()
            try:
                with pytest.raises(KeyboardInterrupt):
                    commands.write(lock, name)
            finally:
                ended.set()
            assert time.monotonic() - start < options.lock_timeout, "it waited for the lock"
        commands.write(lock, name)


def test_statements_outlive_a_rollback_and_are_not_left_behind_by_a_failure(
    module_database_url: str,
) -> None:
    def prepared_in(number: int) -> set[str]:
        for other in range(TIMES):
            store.write(insert, f"CUSTOM_ROUND_{number}_{other}")
        return store.write(lambda tx: prepared_names(tx.connection))

    with opened(module_database_url) as store:
        names = prepared_in(0)
        assert names
        for number in range(3):
            with pytest.raises(LookupError):
                store.write(insert, f"CUSTOM_ROUND_{number}", fails=True)
            assert store.write(lambda tx: prepared_names(tx.connection)) == names
        for number in range(1, 4):
            with pytest.raises(ConcurrentUpdate):
                store.write(insert, "CUSTOM_ROUND_0_0")
            assert len(prepared_in(number)) == 1


def test_statements_that_a_pooler_lost_unseen_are_executed(store: Store) -> None:
    """Those of psycopg too, which forgets them with a ROLLBACK only."""
    uuid = new_provider(store)
    text = sa.text("SELECT 1 + :number")

    def read(tx: ReadTransaction) -> Any:
        numbers = tx.execute(text, {"number": 1}).scalars().all()
        return inventory_rows.of_provider(tx, uuid), numbers

    for run in (store.read_single, store.read, store.write):
        for _ in range(TIMES):
            assert run(read) == ((0, {}), [2])
        run(lambda tx: tx.connection.connection.driver_connection.pgconn.exec_(b"DEALLOCATE ALL"))
        assert run(read) == ((0, {}), [2])


def test_clients_that_get_one_session_from_a_pooler_prepare_under_different_names(
    module_database_url: str,
) -> None:
    """Or one would execute the statement of the other."""
    names: list[str] = []
    for _ in range(2):
        url = module_database_url.replace("+psycopg", "")
        with QuickConnection.connect(url, autocommit=True) as connection:
            for _ in range(TIMES):
                connection.statements.execute("SELECT %s + 1", (1,))
            connection.execute("SELECT 1", prepare=True)
            names += [name for (name,) in connection.execute(PREPARED_NAMES)]
    assert len(set(names)) == len(names) == 4


@pytest.mark.parametrize("reading", ["read", "read_single"])
def test_a_statement_whose_columns_got_other_types_is_executed(store: Store, reading: str) -> None:
    with store.engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE IF NOT EXISTS altered (value int)")
        connection.exec_driver_sql("ALTER TABLE altered ALTER value TYPE int")
        connection.exec_driver_sql("INSERT INTO altered VALUES (1)")

    def read(tx: ReadTransaction) -> Any:
        return plain.rows(tx.connection, "SELECT value FROM altered WHERE value < %s", (2,))

    run = getattr(store, reading)
    for _ in range(TIMES):
        assert run(read)[0] == (1,)
    with store.engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE altered ALTER value TYPE bigint")
    assert run(read)[0] == (1,)


def test_statements_that_somebody_else_deallocated_are_executed(store: Store) -> None:
    uuid = new_provider(store)
    for _ in range(TIMES):
        assert store.read_single(inventory_rows.of_provider, uuid) == (0, {})
    store.read_single(lambda tx: tx.connection.exec_driver_sql("DEALLOCATE ALL"))
    assert store.read_single(inventory_rows.of_provider, uuid) == (0, {})

    tries: list[str] = []

    def write(tx: WriteTransaction, name: str) -> None:
        tries.append(name)
        insert(tx, f"{name}_1", f"{name}_2")

    for number in range(TIMES):
        store.write(write, f"CUSTOM_KEPT_{number}")
    store.write(lambda tx: tx.connection.exec_driver_sql("DEALLOCATE ALL"))
    tries.clear()
    store.write(write, "CUSTOM_LOST")
    assert len(tries) == 1
    assert count_of_traits(store, "CUSTOM_LOST_2") == 1


def test_a_frequent_statement_that_waits_keeps_no_other_thread_from_working(store: Store) -> None:
    def lock(tx: ReadTransaction) -> None:
        text = "SELECT pg_advisory_lock(%s), pg_advisory_unlock(%s)"
        for _ in range(TIMES):
            plain.rows(tx.connection, text, (1, 1))
        assert prepared_names(tx.connection)
        with store.engine.begin() as other:
            other.exec_driver_sql("SELECT pg_advisory_xact_lock(2)")
            waiting = threading.Thread(
                target=plain.rows, args=(tx.connection, text, (2, 2)), daemon=True
            )
            waiting.start()
            while not other.exec_driver_sql(
                "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            ).scalar_one():
                pass
        waiting.join(60)
        assert not waiting.is_alive()

    store.read_single(lock)
