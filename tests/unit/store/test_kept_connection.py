"""Connections: one kept out of its pool for frequent statements, and those of a dropped store."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, QueuePool, create_engine, text

from placement_server.store import resource_classes
from placement_server.store.connection.options import StoreOptions
from placement_server.store.engine import KeptConnection
from placement_server.store.store import Store


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = create_engine(f"sqlite:///{tmp_path / 'placement.db'}", pool_size=2, max_overflow=0)
    yield engine
    engine.dispose()


def checked_out(engine: Engine) -> int:
    """Return how many connections are out of the pool."""
    assert isinstance(engine.pool, QueuePool)
    return engine.pool.checkedout()


def test_callers_one_after_the_other_get_the_same_connection(engine: Engine) -> None:
    kept_connection = KeptConnection(engine, -1)
    first, second = (kept_connection.run(lambda connection: connection) for _ in range(2))
    assert first is second
    assert checked_out(engine) == 1


def test_a_caller_who_comes_while_it_is_in_use_gets_another(engine: Engine) -> None:
    kept_connection = KeptConnection(engine, -1)

    def both(outer: Connection) -> tuple[Connection, Connection]:
        return outer, kept_connection.run(lambda inner: inner)

    outer, inner = kept_connection.run(both)
    assert outer is not inner
    assert (outer.closed, inner.closed) == (False, True)


def test_a_failed_caller_leaves_it_to_the_pool(engine: Engine) -> None:
    kept_connection = KeptConnection(engine, -1)
    with pytest.raises(ZeroDivisionError):
        kept_connection.run(lambda _connection: 1 // 0)
    assert checked_out(engine) == 0
    assert kept_connection.run(lambda connection: connection.scalar(text("SELECT 1"))) == 1


def test_a_connection_that_is_never_to_be_used_twice_is_not(engine: Engine) -> None:
    kept_connection = KeptConnection(engine, recycle_time=0)
    first, second = (kept_connection.run(lambda connection: connection) for _ in range(2))
    assert first is not second
    assert checked_out(engine) == 1


def test_one_that_broke_unnoticed_by_its_caller_is_not_used_again(engine: Engine) -> None:
    kept_connection = KeptConnection(engine, -1)
    kept_connection.run(lambda connection: (connection.begin(), connection.invalidate()))
    assert checked_out(engine) == 0
    assert kept_connection.run(lambda connection: connection.scalar(text("SELECT 1"))) == 1


def test_the_last_one_of_the_pool_is_left_to_callers_that_wait_for_it(engine: Engine) -> None:
    kept_connection = KeptConnection(engine, -1)
    with engine.connect():
        kept_connection.run(lambda _connection: None)
        assert checked_out(engine) == 1
    kept_connection.run(lambda _connection: None)
    assert checked_out(engine) == 1


def test_a_closed_one_is_in_the_pool_again(engine: Engine) -> None:
    kept_connection = KeptConnection(engine, -1)
    kept_connection.run(lambda connection: connection)
    kept_connection.close()
    kept_connection.close()
    assert checked_out(engine) == 0


def open_files() -> Iterator[Path]:
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            yield descriptor.readlink()


def test_a_store_that_was_dropped_leaves_no_connection_open(tmp_path: Path) -> None:
    path = tmp_path / "placement.db"
    store = Store.open(f"sqlite:///{path}", options=StoreOptions(sync_on_startup=True))
    store.read_single(resource_classes.list_all)
    assert path in open_files()
    del store
    gc.collect()  # returns its connections to their pool
    gc.collect()  # closes the pool
    assert path not in open_files()
