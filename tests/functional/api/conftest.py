"""Servers in process for tests of the HTTP API, each on a database of its own.

The databases are SQLite files, or with `PLACEMENT_TEST_DATABASE=postgresql` or `mariadb` on a
private server of that kind.
"""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from oslo_config import cfg

from placement_server.app import build_app
from placement_server.conf import new_config
from placement_server.store.connection.options import store_options
from placement_server.store.store import Store
from tests.fixtures.databases import fresh_database, migrated_sqlite

from .candidate_world import build_world
from .wsgi_client import Client

MakeApi = Callable[..., Client]
Fill = Callable[[Client], Client]

KIND = os.environ.get("PLACEMENT_TEST_DATABASE", "sqlite")
OPTIONS = {
    "api__auth_strategy": "noauth2",
    "oslo_policy__enforce_new_defaults": False,
    "placement_server__web_path": "/-/web",
    # beside other work a search takes long for little
    "placement_server__search_deadline": 600,
}


def _open(database: str, options: dict[str, Any]) -> Client:
    conf = _usual_configuration() if options == OPTIONS else _configuration(options)
    store = Store.open(database, options=replace(store_options(conf), sqlite_synchronous=False))
    return Client(build_app(conf, store), store)


@functools.cache
def _usual_configuration() -> cfg.ConfigOpts:
    """Make what most tests use: to make it takes as long as to make the rest of a server."""
    return _configuration(OPTIONS)


def _configuration(options: dict[str, Any]) -> cfg.ConfigOpts:
    conf = new_config(config_files=[])
    for name, value in options.items():
        group, _, option = name.partition("__")
        conf.set_override(option, value, group=group)
    return conf


@functools.cache
def _filled_file(fill: Fill) -> bytes:
    """An SQLite database with what a function makes, which is written faster than made."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "placement.db"
        fill(_open(migrated_sqlite(path), OPTIONS)).store.close()
        return path.read_bytes()


@pytest.fixture
def make_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], str]]:
    """Make a database with schema and standard names; its URL."""
    made: list[str] = []
    with ExitStack() as databases:

        def make() -> str:
            if KIND == "sqlite":
                made.append(migrated_sqlite(tmp_path / f"placement-{len(made)}.db"))
            else:
                server = request.getfixturevalue(f"{KIND}_server")
                made.append(databases.enter_context(fresh_database(server, migrated=True)))
            return made[-1]

        yield make


@pytest.fixture
def make_api(make_database: Callable[[], str], tmp_path: Path) -> Iterator[MakeApi]:
    """Make a server: noauth2, the legacy policy and pages, changed by `group__option`.

    With `filled_by` there is what this function makes by requests, to a server that is gone.
    """
    stores: list[Store] = []

    def make(policy: str | None = None, filled_by: Fill | None = None, **options: Any) -> Client:
        options = {**OPTIONS, **options}
        if policy is not None:
            policy_file = tmp_path / f"policy-{len(stores)}.yaml"
            policy_file.write_text(policy)
            options["oslo_policy__policy_file"] = str(policy_file)
        if filled_by is None:
            database = make_database()
        elif KIND == "sqlite":
            path = tmp_path / f"filled-{len(stores)}.db"
            path.write_bytes(_filled_file(filled_by))
            database = f"sqlite:///{path}"
        else:
            database = make_database()
            filled_by(_open(database, OPTIONS)).store.close()
        client = _open(database, options)
        stores.append(client.store)
        return client

    yield make
    for store in stores:
        store.close()


@pytest.fixture
def api(make_api: MakeApi) -> Client:
    """A server with nothing in it, used by the admin with legacy policy defaults."""
    return make_api()


@pytest.fixture
def world(make_api: MakeApi) -> Client:
    """A server with hosts and pools: see `build_world`."""
    return make_api(filled_by=build_world)
