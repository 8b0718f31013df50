"""Two servers, each at its own node of a Galera cluster that takes writes on both."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
import sqlalchemy as sa

from placement_server.candidates.index.follower import IndexFollower
from placement_server.store import audit
from placement_server.store.allocations import allocations, usages
from placement_server.store.connection.options import StoreOptions
from placement_server.store.errors import CapacityExceeded, ConcurrentUpdate, ProviderNotFound
from placement_server.store.providers import providers
from placement_server.store.store import Store
from tests.fixtures.allocations import new_uuid
from tests.fixtures.databases import Server, migrate
from tests.fixtures.galera import galera_cluster, galera_missing
from tests.integration.candidates.follower_worker import content
from tests.integration.store.conftest import new_provider, set_of

CAPACITY = 60
CLIENTS = 8
# A busy machine may keep one of eight clients waiting for the same row for longer than the default.
CAUSAL = StoreOptions(connect_tries=1, mysql_wsrep_sync_wait=1, lock_timeout=60)


@dataclass(frozen=True)
class Cluster:
    """Both nodes, and a store at each whose reads wait for what the other node committed."""

    servers: list[Server]
    stores: list[Store]
    database: str

    def url(self, number: int) -> str:
        return self.servers[number].url(self.database)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    reason = galera_missing()
    if reason is not None:
        pytest.skip(reason)
    # the path of a socket is short
    directory = Path("/tmp") / f"test-galera-{secrets.token_hex(4)}"
    with galera_cluster(directory) as servers, contextlib.ExitStack() as stack:
        with servers[0].administrator() as connection:
            connection.exec_driver_sql("CREATE DATABASE placement")
        migrate(servers[0].url("placement"))
        stores = []
        for server in servers:
            store = Store.open(server.url("placement"), options=CAUSAL)
            stack.callback(store.close)
            stores.append(store)
        yield Cluster(servers, stores, "placement")


def claim_until_full(store: Store, host: str) -> int:
    """How many units were got; a lost race is the client's to try again."""
    got = 0
    while True:
        try:
            store.write(allocations.write, [set_of(new_uuid(), {host: {"VCPU": 1}})])
            got += 1
        except CapacityExceeded:
            return got
        except ConcurrentUpdate:
            continue


def test_claims_at_both_nodes_hand_out_what_there_is(cluster: Cluster) -> None:
    host = new_provider(cluster.stores[0], {"VCPU": CAPACITY})
    with ThreadPoolExecutor(CLIENTS) as pool:
        clients = [
            pool.submit(claim_until_full, cluster.stores[number % 2], host)
            for number in range(CLIENTS)
        ]
        got = sum(client.result() for client in clients)
    assert got == CAPACITY
    for store in cluster.stores:
        assert store.read(usages.of_provider, host)[1] == {"VCPU": CAPACITY}
        assert store.read(audit.audit) == []


def test_an_index_at_one_node_has_what_was_written_at_both(cluster: Cluster) -> None:
    followers = [IndexFollower(store) for store in cluster.stores]
    for follower in followers:
        follower.index()
    hosts = [new_provider(store, {"VCPU": 8}) for store in cluster.stores for _ in range(3)]
    for number, host in enumerate(hosts * 2):
        store = cluster.stores[number % 2]
        store.write(allocations.write, [set_of(new_uuid(), {host: {"VCPU": 1}})])
        fresh = content(IndexFollower(store).index())
        assert [content(follower.index()) for follower in followers] == [fresh, fresh]


@contextlib.contextmanager
def behind(server: Server) -> Iterator[sa.Connection]:
    """A node that applies nothing of what the other one commits."""
    with server.administrator() as connection:
        connection.exec_driver_sql("FLUSH TABLES WITH READ LOCK")
        try:
            yield connection
        finally:
            connection.exec_driver_sql("UNLOCK TABLES")


def wait_for_a_waiting_read(connection: sa.Connection) -> None:
    deadline = time.monotonic() + 30
    query = (
        "SELECT count(*) FROM information_schema.processlist "
        "WHERE db = 'placement' AND command = 'Query'"
    )
    while not connection.exec_driver_sql(query).scalar_one():
        assert time.monotonic() < deadline, "no read waits at the node that is behind"


def test_a_read_waits_for_what_the_other_node_committed(cluster: Cluster) -> None:
    options = StoreOptions(connect_tries=1)
    careless = Store.open(cluster.url(1), options=options)
    with ThreadPoolExecutor(1) as pool:
        with behind(cluster.servers[1]) as administrator:
            host = new_provider(cluster.stores[0])
            with pytest.raises(ProviderNotFound):
                careless.read(providers.get, host)
            read = pool.submit(cluster.stores[1].read, providers.get, host)
            wait_for_a_waiting_read(administrator)
        assert read.result(30).uuid == host
    careless.close()
