"""One store per database and module; tests keep apart by the uuids they make."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa

from placement_server.store.allocations import usages
from placement_server.store.connection.options import StoreOptions
from placement_server.store.providers import inventories, providers
from placement_server.store.records import (
    ANY,
    KEEP,
    AnyGeneration,
    ConsumerWrite,
    InventoryRecord,
    Keep,
)
from placement_server.store.store import Store
from placement_server.store.transaction import WriteTransaction
from tests.fixtures.allocations import new_uuid
from tests.fixtures.databases import DATABASES, fresh_database, migrated_sqlite
from tests.integration.store.interleaving import Sessions

OPTIONS = StoreOptions(sqlite_synchronous=False, connect_tries=1)


@pytest.fixture(scope="module", params=DATABASES)
def module_database_url(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A migrated database of each kind in turn, shared by the tests of a module."""
    if request.param == "sqlite":
        yield migrated_sqlite(tmp_path_factory.mktemp("database") / "placement.db")
        return
    server = request.getfixturevalue(f"{request.param}_server")
    with fresh_database(server, migrated=True) as url:
        yield url


@pytest.fixture(scope="module")
def store(module_database_url: str) -> Iterator[Store]:
    with opened(module_database_url) as store:
        yield store


@pytest.fixture(scope="module")
def sessions(store: Store, module_database_url: str) -> Iterator[Sessions]:
    """Three stores over one database, for writers at once."""
    with (
        opened(module_database_url) as second,
        opened(module_database_url) as third,
        closing(Sessions(store, second, third)) as sessions,
    ):
        yield sessions


@pytest.fixture
def configured(tmp_path: Path) -> Callable[[str], list[str]]:
    def configure(url: str) -> list[str]:
        file = tmp_path / "placement.conf"
        file.write_text(
            "[DEFAULT]\nuse_stderr = false\n"
            f"[placement_database]\nconnection = {url}\nmax_retries = 0\n"
        )
        return ["--config-file", str(file)]

    return configure


def new_provider(
    store: Store,
    inventory: Mapping[str, int | InventoryRecord] | None = None,
    parent: str | None = None,
) -> str:
    """A provider of generation 1 with an inventory (totals by class), or of generation 0."""
    created = new_uuid()
    store.write(providers.create, uuid=created, name=f"name-{created}", parent_uuid=parent)
    if inventory:
        stock(store, created, 0, inventory)
    return created


def stock(
    store: Store, provider: str, generation: int, inventory: Mapping[str, int | InventoryRecord]
) -> None:
    """Make this the whole inventory of a provider: records or totals, by class."""
    records = {
        name: record if isinstance(record, InventoryRecord) else InventoryRecord(record)
        for name, record in inventory.items()
    }
    store.write(
        inventories.replace,
        provider,
        generation=generation,
        records=records,
        reserved_may_equal_total=True,
    )


def restock(store: Store, provider: str, name: str, record: InventoryRecord, now: int) -> None:
    """Replace one inventory of a provider that has the generation `now`."""
    change = partial(inventories.update_one, generation=now, reserved_may_equal_total=True)
    store.write(change, provider, name, record)


def add_stock(store: Store, provider: str, name: str, record: InventoryRecord) -> None:
    """Give a provider one inventory more."""
    store.write(inventories.add, provider, name, record, reserved_may_equal_total=True)


def move_provider(store: Store, provider: str, parent: str | None) -> None:
    """Move a provider below another one, or out of its tree."""
    name = store.read(providers.get, provider).name
    move = partial(providers.update, name=name, parent_uuid=parent, reparenting_allowed=True)
    store.write(move, provider)


@contextmanager
def opened(url: str, options: StoreOptions = OPTIONS) -> Iterator[Store]:
    """One more store over a database."""
    store = Store.open(url, options=options)
    try:
        yield store
    finally:
        store.close()


def set_of(
    consumer: str,
    allocations: Mapping[str, Mapping[str, int]],
    expected: int | AnyGeneration | None = ANY,
    *,
    project: str = "project",
    user: str = "user",
    consumer_type: str | Keep | None = KEEP,
) -> ConsumerWrite:
    return ConsumerWrite(consumer, allocations, project, user, consumer_type, expected)


def generation_of(store: Store, provider: str) -> int:
    return store.read(providers.get, provider).generation


def use_of(store: Store, provider: str) -> dict[str, int]:
    return store.read(usages.of_provider, provider)[1]


def sabotage(store: Store, *statements: str, **parameters: object) -> None:
    """Execute what no function of the store would."""

    def action(tx: WriteTransaction) -> None:
        for statement in statements:
            tx.execute(sa.text(statement), parameters)

    store.write(action)
