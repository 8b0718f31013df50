"""Servers in process for tests of the HTTP API, each on a database of its own.

The databases are SQLite files, or with ``PLACEMENT_TEST_DATABASE=postgresql`` or ``mariadb`` on a
private server of that kind.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from placement_server.app import build_app
from placement_server.conf import new_config
from placement_server.store.connection.options import StoreOptions
from placement_server.store.store import Store
from tests.fixtures.databases import fresh_database, migrated_sqlite

from .candidate_world import build_world
from .wsgi_client import Client

MakeApi = Callable[..., Client]

KIND = os.environ.get("PLACEMENT_TEST_DATABASE", "sqlite")


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
    """Make a server: noauth2, the legacy policy and pages, changed by ``group__option``."""
    stores: list[Store] = []

    def make(policy: str | None = None, **options: Any) -> Client:
        store = Store.open(make_database(), options=StoreOptions(sqlite_synchronous=False))
        stores.append(store)
        conf = new_config(config_files=[])
        options = {
            "api__auth_strategy": "noauth2",
            "oslo_policy__enforce_new_defaults": False,
            "placement_server__web_path": "/-/web",
            **options,
        }
        if policy is not None:
            policy_file = tmp_path / f"policy-{len(stores)}.yaml"
            policy_file.write_text(policy)
            options["oslo_policy__policy_file"] = str(policy_file)
        for name, value in options.items():
            group, _, option = name.partition("__")
            conf.set_override(option, value, group=group)
        return Client(build_app(conf, store), store)

    yield make
    for store in stores:
        store.close()


@pytest.fixture
def api(make_api: MakeApi) -> Client:
    """A server with nothing in it, used by the admin with legacy policy defaults."""
    return make_api()


@pytest.fixture
def world(api: Client) -> Client:
    """A server with hosts and pools: see :func:`build_world`."""
    return build_world(api)
