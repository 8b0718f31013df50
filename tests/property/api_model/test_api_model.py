"""Random requests over HTTP, after each of which a GET shows what a model of dictionaries says.

The real WSGI application in process, on SQLite.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import settings

from placement_server.store.connection.options import StoreOptions
from placement_server.store.store import Store
from tests.fixtures.databases import migrated_sqlite
from tests.property.api_model.apis import api_of
from tests.property.api_model.machine import Machine, run


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[type[Machine]]:
    path = tmp_path / "placement.db"
    store = Store.open(migrated_sqlite(path), options=StoreOptions(sqlite_synchronous=False))
    with closing(sqlite3.connect(path, isolation_level=None)) as beside:

        class OnSqlite(Machine):
            api = api_of(store)

            def commits(self) -> int:
                ((version,),) = beside.execute("PRAGMA data_version")
                return int(version)

        yield OnSqlite
    store.close()


# a failure takes minutes to be made small
@pytest.mark.timeout(900)
def test_every_get_equals_the_model_after_every_request(machine: type[Machine]) -> None:
    run(machine, max(20, settings().max_examples // 5))
