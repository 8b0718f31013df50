"""New names that many writers make at once: every one is made, and nobody is asked to try again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from placement_server.store import resource_classes, transaction
from placement_server.store.allocations import allocations
from placement_server.store.providers import traits
from placement_server.store.store import Store
from tests.fixtures.allocations import new_uuid
from tests.integration.store.conftest import new_provider, opened, set_of, stock, use_of

CLIENTS = 24
ROUNDS = 4

Make = Callable[[Store, str], Any]


def ensure_class(store: Store, name: str) -> Any:
    return store.write(resource_classes.ensure, name)


def ensure_trait(store: Store, name: str) -> Any:
    return store.write(traits.ensure, name)


@pytest.fixture
def stores(store: Store, module_database_url: str) -> Iterator[list[Store]]:
    """Some stores over one database, as its workers have them."""
    with opened(module_database_url) as second, opened(module_database_url) as third:
        yield [store, second, third]


def at_once(stores: list[Store], make: Make, names: list[str]) -> list[Any]:
    """Let each of some clients make a name, all in the same moment."""
    barrier = threading.Barrier(len(names))

    def client(number: int) -> Any:
        barrier.wait(30)
        return make(stores[number % len(stores)], names[number])

    with ThreadPoolExecutor(len(names)) as pool:
        return list(pool.map(client, range(len(names))))


@pytest.mark.parametrize("make", [ensure_class, ensure_trait])
def test_one_new_name_of_many_writers_is_made_once(stores: list[Store], make: Make) -> None:
    for turn in range(ROUNDS):
        name = f"CUSTOM_ONE_{make.__name__.upper()}_{turn}"
        rows = at_once(stores, make, [name] * CLIENTS)
        assert len({row.id for row, _is_new in rows}) == 1
        assert sum(is_new for _row, is_new in rows) == 1


def test_new_consumer_types_projects_and_users_of_many_writers_are_all_made(
    stores: list[Store],
) -> None:
    hosts = [new_provider(stores[0], {"VCPU": 1000}) for _ in range(CLIENTS)]

    def claim(store: Store, name: str) -> Any:
        host = hosts[int(name.rpartition("_")[2])]
        write = set_of(
            new_uuid(), {host: {"VCPU": 1}}, None, project=name, user=name, consumer_type=name
        )
        return store.write(allocations.write, [write])

    for turn in range(ROUNDS):
        at_once(stores, claim, [f"TYPE_{turn}_{number}" for number in range(CLIENTS)])
    assert {use_of(stores[0], host)["VCPU"] for host in hosts} == {ROUNDS}


@pytest.mark.parametrize("names", [1, CLIENTS])
def test_no_writer_of_a_class_loses_a_race(
    stores: list[Store], monkeypatch: pytest.MonkeyPatch, names: int
) -> None:
    failures = []
    is_worth_retrying = transaction.is_worth_retrying

    def counted(error: BaseException) -> bool:
        failures.append(error)
        return is_worth_retrying(error)

    monkeypatch.setattr(transaction, "is_worth_retrying", counted)
    at_once(stores, ensure_class, [f"CUSTOM_OF_{names}_{n % names}" for n in range(CLIENTS)])
    assert failures == []


def test_agents_that_start_together_with_a_class_each_are_all_served(stores: list[Store]) -> None:
    """Each reports a host with a class and a trait of its own, and with names of all of them."""

    def start(store: Store, name: str) -> str:
        host = new_provider(store)
        common = name.rpartition("_")[0]
        for made in (name, common):
            store.write(resource_classes.ensure, made)
            store.write(traits.ensure, made)
        stock(store, host, 0, {name: 4, common: 4})
        store.write(traits.replace_of_provider, host, [name, common], generation=1)
        return host

    for turn in range(ROUNDS):
        names = [f"CUSTOM_AGENT{turn}_{number}" for number in range(CLIENTS)]
        for name, host in zip(names, at_once(stores, start, names), strict=True):
            assert use_of(stores[0], host) == {name: 0, f"CUSTOM_AGENT{turn}": 0}
            assert name in {row.name for row in stores[0].read(traits.of_provider, host)[1]}
