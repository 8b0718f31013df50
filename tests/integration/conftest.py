"""A placement for the tests of a module, and for the agents that they start, or its store alone."""

from collections.abc import Iterator

import pytest

from placement_server.store.store import Store
from tests.functional.agent.processes import PlacementProcess, running_placement


@pytest.fixture(scope="module")
def placement(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlacementProcess]:
    with running_placement(tmp_path_factory.mktemp("placement")) as server:
        yield server


@pytest.fixture
def store(migrated_database_url: str) -> Iterator[Store]:
    store = Store.open(migrated_database_url)
    yield store
    store.close()


@pytest.fixture
def several_writers(store: Store) -> None:
    if store.engine.dialect.name == "sqlite":
        pytest.skip("SQLite has one writer at a time: changes commit in the order of their ids")
