"""Random requests over HTTP, after each of which a GET shows what a model of dictionaries says.

The real WSGI application in process, on SQLite.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from placement_server.app import build_app
from placement_server.conf import new_config
from placement_server.store.connection.options import StoreOptions
from placement_server.store.store import Store
from tests.functional.api.wsgi_client import Client
from tests.property.api_model.machine import Machine


@pytest.fixture(scope="module")
def api() -> Iterator[Client]:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "placement.db"
        store = Store.open(
            f"sqlite:///{path}",
            options=StoreOptions(sync_on_startup=True, sqlite_synchronous=False),
        )
        conf = new_config(config_files=[])
        conf.set_override("auth_strategy", "noauth2", group="api")
        conf.set_override("enforce_new_defaults", False, group="oslo_policy")
        with closing(sqlite3.connect(path, isolation_level=None)) as Machine.beside:
            yield Client(build_app(conf, store), store)
        store.close()


# a failure takes minutes to be made small
@pytest.mark.timeout(900)
def test_every_get_equals_the_model_after_every_request(api: Client) -> None:
    Machine.api = api
    profile = settings()
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=max(20, profile.max_examples // 5),
            stateful_step_count=30,
            suppress_health_check=list(HealthCheck),
        ),
    )
