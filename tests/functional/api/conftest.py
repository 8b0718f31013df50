"""Servers in process for tests of the HTTP API, each on a database of its own."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from placement_server.app import build_app
from placement_server.conf import new_config
from placement_server.store.options import StoreOptions
from placement_server.store.store import Store

from .wsgi_client import Client

MakeApi = Callable[..., Client]


@pytest.fixture(scope="session")
def database_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with schema and standard names, to be copied."""
    path = tmp_path_factory.mktemp("template") / "placement.db"
    store = Store.open(f"sqlite:///{path}", options=StoreOptions(sync_on_startup=True))
    store.synchronise_standard_names()
    store.close()
    return path


@pytest.fixture
def make_api(database_template: Path, tmp_path: Path) -> Iterator[MakeApi]:
    """Make a server: noauth2 with the legacy policy, changed by options ``group__option``."""
    stores: list[Store] = []

    def make(policy: str | None = None, **options: Any) -> Client:
        database = tmp_path / f"placement-{len(stores)}.db"
        shutil.copy(database_template, database)
        store = Store.open(f"sqlite:///{database}", options=StoreOptions(sqlite_synchronous=False))
        stores.append(store)
        conf = new_config(config_files=[])
        options = {
            "api__auth_strategy": "noauth2",
            "oslo_policy__enforce_new_defaults": False,
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
