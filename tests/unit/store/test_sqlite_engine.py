"""SQLite: first connections beside a writer, and its plan for lists of values."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, select
from sqlalchemy.exc import OperationalError

from placement_server.store.connection.options import StoreOptions
from placement_server.store.dialects import plain
from placement_server.store.dialects.batches import among
from placement_server.store.engine import create_engines
from placement_server.store.tables import resource_providers


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "placement.db"


@pytest.fixture
def writer(path: Path) -> Iterator[sqlite3.Connection]:
    """Another process in its first write, before the write-ahead log is on."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("CREATE TABLE something (id INTEGER)")
    connection.execute("BEGIN IMMEDIATE")
    yield connection
    connection.close()


def test_a_first_connection_waits_for_the_writer(path: Path, writer: sqlite3.Connection) -> None:
    engines = create_engines(f"sqlite:///{path}", StoreOptions())
    with ThreadPoolExecutor(1) as pool:
        connecting = pool.submit(engines.reader.connect)
        with pytest.raises(TimeoutError):
            connecting.result(0.3)
        writer.execute("COMMIT")
        with connecting.result(30) as connection:
            assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
    engines.dispose()


@pytest.mark.usefixtures("writer")
def test_a_first_connection_gives_up_after_the_lock_timeout(path: Path) -> None:
    engines = create_engines(f"sqlite:///{path}", StoreOptions(lock_timeout=0.1))
    with pytest.raises(OperationalError, match="database is locked"):
        engines.reader.connect()
    engines.dispose()


@pytest.mark.parametrize("is_set", [True, False])
def test_the_options_reach_each_connection(path: Path, is_set: bool) -> None:
    options = StoreOptions(sqlite_synchronous=is_set, connection_trace=is_set)
    engines, statements = create_engines(f"sqlite:///{path}", options), list[str]()
    for engine in (engines.reader, engines.writer):
        with engine.begin() as connection:
            settings = [
                connection.exec_driver_sql(f"PRAGMA {name}").scalar()
                for name in ("synchronous", "foreign_keys")
            ]
            assert settings == [2 if is_set else 0, 1]
            connection.info["store_function"] = "a function"
            driver: Any = connection.connection.driver_connection
            driver.set_trace_callback(statements.append)
            connection.exec_driver_sql("SELECT 1")
            driver.set_trace_callback(None)
    assert statements == ["SELECT 1 -- a function" if is_set else "SELECT 1"] * 2
    engines.dispose()


@pytest.mark.parametrize(
    ("debug", "echo"), [(0, False), (49, False), (50, True), (99, True), (100, "debug")]
)
def test_statements_are_logged_from_50_on_and_their_results_at_100(
    debug: int, echo: object
) -> None:
    engines = create_engines(
        "sqlite:////nowhere/placement.db", StoreOptions(connection_debug=debug)
    )
    assert engines.writer.echo == engines.reader.echo == echo


def test_a_read_that_is_cut_off_leaves_no_snapshot_on_its_connection(path: Path) -> None:
    engines = create_engines(f"sqlite:///{path}", StoreOptions())
    assert engines.single is not None
    with engines.writer.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE something (id TEXT)")
        connection.exec_driver_sql("INSERT INTO something VALUES ('a'), ('b')")

    def no_memory(_text: bytes) -> str:
        raise MemoryError

    with engines.single.connect() as connection:
        driver: Any = connection.connection.driver_connection
        driver.text_factory = no_memory
        with pytest.raises(MemoryError):
            plain.rows(connection, "SELECT id FROM something", ())
        driver.text_factory = str
    with engines.writer.begin() as connection:
        connection.exec_driver_sql("INSERT INTO something VALUES ('c')")
    with sqlite3.connect(path) as another:
        is_busy = another.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    another.close()
    assert not is_busy
    engines.dispose()


_C = resource_providers.c


def test_an_index_serves_the_condition() -> None:
    statement = select(_C.name).where(among(_C.uuid, "uuids"), _C.generation == 1)
    engine = create_engine("sqlite://")
    text = statement.compile(engine)
    with engine.begin() as connection:
        resource_providers.create(connection)
        steps = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", ('["a", "b"]', 1))
        (*_, plan), *_ = steps
    assert plan.startswith("SEARCH resource_providers USING INDEX")
