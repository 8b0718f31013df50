"""Time limits of statements and of their waits for locks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa
from msgspec.structs import replace

from placement_server.app import build_app
from placement_server.cmd import manage
from placement_server.conf import new_config
from placement_server.store import engine as engine_module
from placement_server.store.engine import create_engines
from placement_server.store.errors import ProviderNotFound, StoreUnavailable
from placement_server.store.providers import providers
from placement_server.store.store import Store
from placement_server.store.tables import resource_providers
from placement_server.store.transaction import ReadTransaction, WriteTransaction
from tests.fixtures.allocations import claim_body, new_uuid
from tests.functional.api.wsgi_client import Client
from tests.integration.store.conftest import OPTIONS, new_provider, opened
from tests.integration.store.held_locks import held, hold_inventories
from tests.integration.store.interleaving import DEADLINE

pytestmark = pytest.mark.waiting

SERVERS = pytest.mark.parametrize(
    "module_database_url", ["postgresql", "mariadb"], indirect=True, scope="module"
)
SLEEP = {"postgresql": "SELECT pg_sleep({})", "mysql": "SELECT SLEEP({})"}
HASTY = replace(OPTIONS, statement_timeout=0.5)
_C = resource_providers.c
IMPATIENT = replace(OPTIONS, lock_timeout=1.0)


def sleep(tx: ReadTransaction, seconds: float) -> None:
    tx.execute(sa.text(SLEEP[tx.batches.family].format(seconds))).all()


@pytest.fixture
def hasty(module_database_url: str) -> Iterator[Store]:
    """A store whose statements may take half a second."""
    with opened(module_database_url, HASTY) as store:
        yield store


@pytest.fixture
def impatient(module_database_url: str) -> Iterator[Store]:
    """A store that waits a second for a lock."""
    with opened(module_database_url, IMPATIENT) as store:
        yield store


@SERVERS
def test_a_write_with_a_statement_that_takes_too_long_is_given_up_and_leaves_nothing(
    hasty: Store,
) -> None:
    tries: list[str] = []

    def create_slowly(tx: WriteTransaction) -> None:
        tries.append(new_uuid())
        providers.create(tx, uuid=tries[-1], name=tries[-1])
        sleep(tx, DEADLINE)

    with pytest.raises(StoreUnavailable, match=r"\[placement_database\]statement_timeout"):
        hasty.write(create_slowly)
    assert len(tries) == 1
    with pytest.raises(ProviderNotFound):
        hasty.read(providers.get, tries[0])


@SERVERS
@pytest.mark.parametrize("reading", ["read", "read_single"])
def test_a_read_that_takes_too_long_is_given_up(hasty: Store, reading: str) -> None:
    with pytest.raises(StoreUnavailable, match="statement_timeout"):
        getattr(hasty, reading)(sleep, DEADLINE)


@SERVERS
def test_a_write_waits_for_a_lock_no_longer_than_its_timeout_and_once(
    store: Store, impatient: Store
) -> None:
    provider = new_provider(store, {"VCPU": 8})
    tries: list[int] = []

    def hold(tx: WriteTransaction) -> None:
        tries.append(1)
        hold_inventories(tx, provider)

    with (
        held(store, hold_inventories, provider),
        pytest.raises(StoreUnavailable, match=r"\[placement_database\]lock_timeout") as refused,
    ):
        impatient.write(hold)
    assert not {"FROM", "SELECT", "tuple"} & set(str(refused.value).split()), "no SQL for clients"
    assert len(tries) == 1
    impatient.write(hold)


@pytest.mark.parametrize(("seconds", "limit"), [(0.5, 1), (30.0, 30)])
def test_the_limits_of_mariadb_are_whole_seconds(
    mariadb_url: str, seconds: float, limit: int
) -> None:
    options = replace(
        OPTIONS, lock_timeout=seconds, write_idle_timeout=seconds, mysql_wsrep_sync_wait=3
    )
    names = ("innodb_lock_wait_timeout", "idle_write_transaction_timeout", "wsrep_sync_wait")
    engines = create_engines(mariadb_url, options)
    for engine, idle in ((engines.writer, limit), (engines.reader, 0)):
        with engine.connect() as connection:
            query = f"SELECT {', '.join(f'@@{name}' for name in names)}"
            assert connection.exec_driver_sql(query).one() == (limit, idle, 3)
    engines.dispose()


def rename(tx: WriteTransaction, host: str) -> None:
    name = f"name-{new_uuid()}"
    tx.execute(sa.update(resource_providers).where(_C.uuid == host).values(name=name))


@SERVERS
def test_a_write_that_stops_keeps_nobody_waiting_and_a_read_may(
    store: Store, module_database_url: str
) -> None:
    provider = new_provider(store)
    begun, go_on, tries = threading.Event(), threading.Event(), list[object]()

    def look(tx: ReadTransaction) -> None:
        tries.append(tx.execute(sa.select(_C.id)).all())
        begun.set()
        assert go_on.wait(DEADLINE)
        assert tries == [tx.execute(sa.select(_C.id)).all()]

    with (
        opened(module_database_url, replace(OPTIONS, write_idle_timeout=1.0)) as stopping,
        opened(module_database_url, replace(OPTIONS, lock_timeout=15.0)) as another,
        ThreadPoolExecutor(1) as pool,
    ):
        reader = pool.submit(stopping.read, look)
        assert begun.wait(DEADLINE)
        try:
            with held(stopping, rename, provider):
                another.write(rename, provider)
        finally:
            go_on.set()
        reader.result(DEADLINE)


@pytest.mark.parametrize("module_database_url", ["sqlite"], indirect=True)
def test_writers_of_one_process_queue_no_longer_than_the_lock_timeout(impatient: Store) -> None:
    host = new_provider(impatient)
    with ThreadPoolExecutor(1) as pool, held(impatient, lambda *_: None, host):
        waiting = pool.submit(new_provider, impatient)
        with pytest.raises(StoreUnavailable, match=r"\[placement_database\]lock_timeout"):
            waiting.result(DEADLINE)
    new_provider(impatient)


@SERVERS
def test_a_client_whose_claim_was_cut_off_gets_503_and_the_log_says_why(
    store: Store, module_database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    provider, consumer = new_provider(store, {"VCPU": 8}), new_uuid()
    conf = new_config(config_files=[])
    conf.set_override("connection", module_database_url, group="placement_database")
    conf.set_override("statement_timeout", 0.5, group="placement_database")
    conf.set_override("auth_strategy", "noauth2", group="api")
    served = Store.from_conf(conf)
    client = Client(build_app(conf, served), served)
    with held(store, hold_inventories, provider), caplog.at_level(logging.ERROR):
        answer = client.claim(consumer, held={provider: {"VCPU": 1}})
    assert answer.status == 503
    assert "[placement_database]statement_timeout" in answer.detail
    (record,) = (entry for entry in caplog.records if entry.name == "placement_server.api.routes")
    assert f"PUT /allocations/{consumer}: The database ended a statement" in record.getMessage()
    assert client.get(f"/allocations/{consumer}").json == {"allocations": {}}
    assert client.put(f"/allocations/{consumer}", claim_body({provider: {"VCPU": 1}})).status == 204
    served.close()


def lock_of_the_schema(database: sa.Connection) -> None:
    if database.dialect.name == "postgresql":
        database.execute(sa.text("SELECT pg_advisory_xact_lock(1886151011)"))
    else:
        name = f"placement-server schema {database.engine.url.database}"[:64]
        database.execute(sa.text("SELECT GET_LOCK(:name, 0)"), {"name": name})


@pytest.mark.parametrize("database_url", ["postgresql", "mariadb"], indirect=True)
def test_a_migration_at_start_waits_for_another_longer_than_a_statement_may(
    database_url: str,
) -> None:
    engine = sa.create_engine(engine_module.database_url(database_url))
    with ThreadPoolExecutor(1) as pool, engine.connect() as other:
        lock_of_the_schema(other)
        opening = pool.submit(
            Store.open, database_url, options=replace(HASTY, sync_on_startup=True)
        )
        with pytest.raises(TimeoutError):
            opening.result(2 * HASTY.statement_timeout)
        other.close()
        engine.dispose()
        opening.result(DEADLINE).close()


@pytest.mark.parametrize("database_url", ["postgresql", "mariadb"], indirect=True)
def test_commands_of_operators_are_not_limited(
    database_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "placement.conf"
    file.write_text(
        f"[placement_database]\nconnection = {database_url}\nstatement_timeout = 0.001\n"
    )
    for command in (["db", "sync"], ["db", "online_data_migrations"], ["audit"]):
        assert manage.main(["--config-file", str(file), *command]) == 0, capsys.readouterr().err
