"""Conditions about lists of values, on every database."""

from __future__ import annotations

import pytest
from sqlalchemy import insert, select
from sqlalchemy.exc import DBAPIError

from placement_server.store.dialects.batches import among
from placement_server.store.store import Store
from placement_server.store.tables import resource_providers, traits
from placement_server.store.transaction import WriteTransaction
from tests.integration.store.conftest import new_provider

_C = resource_providers.c
LOCK = select(_C.uuid).where(among(_C.uuid, "uuids")).with_for_update(nowait=True)
NAMES = select(traits.c.name).where(among(traits.c.name, "names"))

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
    def write_and_read(tx: WriteTransaction, wanted: list[str]) -> list[str]:
        return list(tx.execute(NAMES, {"names": wanted}).scalars())

    def insert_them(tx: WriteTransaction) -> None:
        tx.execute(insert(traits), [{"name": name} for name in HOSTILE])

    store.write(insert_them)
    assert sorted(store.write(write_and_read, HOSTILE)) == sorted(HOSTILE)
    for name in HOSTILE:
        assert store.write(write_and_read, [name]) == [name]
    assert store.write(write_and_read, []) == []


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
