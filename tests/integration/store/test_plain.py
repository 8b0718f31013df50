"""Statements: reads by the driver alone, and conditions about lists of values."""

from __future__ import annotations

import pytest
from sqlalchemy import bindparam, event, insert, select
from sqlalchemy.exc import DBAPIError

from placement_server.store.dialects import plain
from placement_server.store.dialects.batches import among
from placement_server.store.dialects.plain import PlainSelect
from placement_server.store.providers import inventory_rows
from placement_server.store.store import Store
from placement_server.store.tables import resource_providers, traits
from placement_server.store.transaction import ReadTransaction, WriteTransaction
from tests.integration.store.conftest import new_provider

BY_UUID = select(resource_providers).where(resource_providers.c.uuid == bindparam("uuid"))


def test_rows_and_their_types_are_those_of_sqlalchemy(store: Store) -> None:
    uuid = {"uuid": new_provider(store)}
    expected = store.read_single(lambda tx: tx.execute(BY_UUID, uuid).all())
    found = store.read_single(lambda tx: PlainSelect(BY_UUID).rows(tx.connection, uuid))
    assert list(found) == [tuple(row) for row in expected]
    assert [list(map(type, row)) for row in found] == [list(map(type, row)) for row in expected]


def test_a_statement_that_fails_raises_what_sqlalchemy_raises(store: Store) -> None:
    def read(tx: ReadTransaction) -> None:
        with pytest.raises(DBAPIError, match="no_such_table"):
            plain.rows(tx.connection, "SELECT id FROM no_such_table", ())

    store.read_single(read)


@pytest.mark.parametrize("module_database_url", ["postgresql"], indirect=True, scope="module")
def test_a_read_on_a_connection_that_broke_is_repeated_on_another(store: Store) -> None:
    uuid = new_provider(store)
    (backend,) = store.read_single(
        lambda tx: plain.rows(tx.connection, "SELECT pg_backend_pid()", ())[0]
    )
    ended = "SELECT pg_terminate_backend(%s::integer, 30000)"
    assert store.read(lambda tx: plain.rows(tx.connection, ended, (backend,))[0][0])
    assert store.read_single(inventory_rows.of_provider, uuid) == (0, {})


@pytest.mark.parametrize("module_database_url", ["postgresql"], indirect=True, scope="module")
def test_a_statement_that_the_database_refused_is_not_executed_again(store: Store) -> None:
    with store.engine.begin() as connection:
        connection.exec_driver_sql("CREATE SEQUENCE executions")

    def read(tx: ReadTransaction) -> list[int]:
        with pytest.raises(DBAPIError, match="division by zero"):
            plain.rows(tx.connection, "SELECT nextval('executions') / 0", ())
        return [row[0] for row in plain.rows(tx.connection, "SELECT nextval('executions')", ())]

    assert store.read_single(read) == [2]


_C = resource_providers.c
LOCK = select(_C.uuid).where(among(_C.uuid, "uuids")).with_for_update(nowait=True)
NAMES = select(traits.c.name).where(among(traits.c.name, "names"))
BY_NAME = "SELECT id FROM traits WHERE name "

HOSTILE = [
    "'",
    '"',
    "\\",
    '\\"',
    "{a,b}",
    "a,b",
    "NULL",
    "%s",
    "%(names)s",
    ":names",
    "$1",
    "x'); DROP TABLE traits; --",
    " leading and trailing\t",
    "two\nlines",
    "größe",
    "\N{SNOWMAN}\N{GRINNING FACE}",
    "x" * 255,
]


def test_values_are_found_as_they_are_written(store: Store) -> None:
    def names_among(tx: ReadTransaction, wanted: list[str]) -> list[str]:
        by_driver = [name for (name,) in tx.execute_among(NAMES, "names", wanted)]
        assert len(list(tx.rows_among(BY_NAME, wanted))) == len(by_driver)
        assert sorted(by_driver) == sorted(tx.execute(NAMES, {"names": wanted}).scalars())
        return by_driver

    def insert_them(tx: WriteTransaction) -> None:
        tx.execute(insert(traits), [{"name": name} for name in HOSTILE])

    store.write(insert_them)
    assert sorted(store.read(names_among, HOSTILE)) == sorted(HOSTILE)
    for name in HOSTILE:
        assert store.read(names_among, [name]) == [name]
    assert store.read(names_among, []) == []


@pytest.mark.parametrize(
    "module_database_url", ["sqlite", "postgresql"], indirect=True, scope="module"
)
def test_the_text_of_a_statement_does_not_grow_with_its_values(store: Store) -> None:
    texts: set[str] = set()

    def watch(_: object, __: object, text: str, *___: object) -> None:
        texts.add(text)

    for engine in store.all_engines():
        event.listen(engine, "before_cursor_execute", watch)
    for count in (9, 10, 100):
        values = [str(number) for number in range(count)]
        store.read_single(lambda tx, values=values: tx.execute(NAMES, {"names": values}).all())
        store.read_single(ReadTransaction.execute_among, NAMES, "names", values)
        store.read_single(lambda tx, values=values: list(tx.rows_among(BY_NAME, values)))
    assert sum("FROM traits" in text for text in texts) <= 2
    for engine in store.all_engines():
        event.remove(engine, "before_cursor_execute", watch)


def test_a_value_that_is_longer_than_the_column_is_not_cut(store: Store) -> None:
    def insert_and_read(tx: WriteTransaction) -> list[str]:
        tx.execute(insert(traits), {"name": "y" * 255})
        return list(tx.execute(NAMES, {"names": ["y" * 256]}).scalars())

    assert store.write(insert_and_read) == []


@pytest.mark.parametrize(
    "module_database_url", ["postgresql", "mariadb"], indirect=True, scope="module"
)
def test_no_other_rows_are_locked_than_those_with_the_values(store: Store) -> None:
    one, other = new_provider(store), new_provider(store)
    with store.engine.begin() as first, store.engine.begin() as second:
        first.execute(LOCK, {"uuids": [one]}).all()
        assert second.execute(LOCK, {"uuids": [other]}).scalars().all() == [other]
        with pytest.raises(DBAPIError):
            second.execute(LOCK, {"uuids": [one]})
