"""Databases that cannot be used: what no waiting mends ends at once, with its reason."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy import event

from placement_server.conf import new_config
from placement_server.direct import direct
from placement_server.store.connection.options import StoreOptions
from placement_server.store.errors import StoreError, StoreUnavailable
from placement_server.store.providers import providers
from placement_server.store.store import Store
from placement_server.store.transaction import WriteTransaction
from tests.fixtures.allocations import new_uuid
from tests.fixtures.databases import Server
from tests.integration.store.conftest import OPTIONS, new_provider

PATIENT = StoreOptions(connect_tries=3, connect_interval=0.01)


@pytest.fixture
def refused(caplog: pytest.LogCaptureFixture) -> Callable[[str], str]:
    """Opens a store, which must fail at the first try; the reason."""

    def open_store(url: str, options: StoreOptions = PATIENT) -> str:
        with pytest.raises(StoreError) as error:
            Store.open(url, options=options).close()
        own = [record for record in caplog.records if record.name.startswith("placement_server")]
        assert own == [], "it waited for what does not come"
        return str(error.value)

    return open_store


@pytest.fixture
def placement_file(tmp_path: Path) -> Path:
    path = tmp_path / "placement.db"
    Store.open(f"sqlite:///{path}", options=StoreOptions(sync_on_startup=True)).close()
    return path


def test_a_file_that_is_not_a_database(refused: Callable[[str], str], tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database at all\n" * 100)
    assert "file is not a database" in refused(f"sqlite:///{path}")


def test_a_file_in_no_directory(refused: Callable[[str], str]) -> None:
    assert "unable to open database file" in refused("sqlite:////nonexistent/placement.db")


def test_a_file_that_may_only_be_read(
    placement_file: Path, refused: Callable[[str, StoreOptions], str]
) -> None:
    connection = sa.create_engine(f"sqlite:///{placement_file}").raw_connection()
    connection.execute("PRAGMA journal_mode = DELETE")
    connection.close()
    url = f"sqlite:///file:{placement_file}?mode=ro&uri=true"
    assert "readonly" in refused(url, PATIENT)


def test_a_full_disk_ends_a_request_at_once_and_the_next_one_may_go_well(
    placement_file: Path,
) -> None:
    store = Store.open(f"sqlite:///{placement_file}", options=OPTIONS)
    tries = []

    def fill(connection: sa.Connection) -> None:
        tries.append(1)
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")

    def make_many() -> None:
        def action(tx: WriteTransaction) -> None:
            for _ in range(500):
                providers.create(tx, uuid=new_uuid(), name=new_uuid())

        store.write(action)

    event.listen(store.engine, "begin", fill)
    with pytest.raises(StoreUnavailable, match="disk is full"):
        make_many()
    assert len(tries) == 1
    event.remove(store.engine, "begin", fill)
    store.engine.dispose()
    make_many()
    store.close()


def test_a_database_that_breaks_under_a_server_is_a_503_that_is_logged_once(
    placement_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    conf = new_config(config_files=[])
    conf.set_override("connection", f"sqlite:///{placement_file}", group="placement_database")
    conf.set_override("connection_recycle_time", 0, group="placement_database")
    with direct(conf) as session:
        assert session.get("/resource_providers").status_code == 200
        for file in placement_file.parent.iterdir():
            file.unlink()
        placement_file.write_text("not a database at all\n" * 100)
        caplog.clear()
        answer = session.get("/resource_providers")
    assert answer.status_code == 503
    assert "file is not a database" in caplog.text
    assert "file is not a database" not in answer.text
    assert "PRAGMA" not in answer.text
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 1


@pytest.fixture
def role(postgresql_server: Server) -> Iterator[str]:
    """A role of PostgreSQL with the password "right", that owns nothing."""
    name = f"role_{new_uuid()[:8]}"
    with postgresql_server.administrator() as connection:
        connection.exec_driver_sql(f"CREATE ROLE {name} LOGIN PASSWORD 'right'")
        yield name
        connection.exec_driver_sql(f"DROP ROLE {name}")


@pytest.fixture
def guarded_role(role: str, postgresql_server: Server) -> Iterator[str]:
    """A role that needs its password."""
    rules = Path(postgresql_server.directory) / "data" / "pg_hba.conf"
    before = rules.read_text()
    with postgresql_server.administrator() as connection:
        rules.write_text(f"host all {role} 127.0.0.1/32 scram-sha-256\n{before}")
        connection.exec_driver_sql("SELECT pg_reload_conf()")
        yield role
        rules.write_text(before)
        connection.exec_driver_sql("SELECT pg_reload_conf()")


def test_a_wrong_password_of_postgresql(
    guarded_role: str, postgresql_url: str, refused: Callable[[str], str]
) -> None:
    reason = refused(postgresql_url.replace("root@", f"{guarded_role}:wrong@"))
    assert "password authentication failed" in reason
    assert ":wrong@" not in reason
    assert "[placement_database]connection" in reason


def test_a_role_or_database_that_postgresql_does_not_have(
    postgresql_url: str, refused: Callable[[str], str]
) -> None:
    assert 'role "nobody" does not exist' in refused(postgresql_url.replace("root@", "nobody@"))
    assert '_missing" does not exist' in refused(f"{postgresql_url}_missing")
    # psycopg 3.1 to 3.1.13 keeps nothing but the value
    reason = refused(f"{postgresql_url}?sslmode=on")
    assert 'invalid sslmode value: "on"' in reason or 'connection is bad: "on"' in reason


def test_a_role_of_postgresql_that_may_not_read_the_tables(
    role: str, postgresql_url: str, refused: Callable[[str], str]
) -> None:
    Store.open(postgresql_url, options=StoreOptions(sync_on_startup=True)).close()
    reason = refused(postgresql_url.replace("root@", f"{role}@"))
    assert "permission denied for table alembic_version" in reason
    assert "SELECT" not in reason


@pytest.mark.parametrize(
    ("kind", "statement"),
    [
        ("postgresql", "SET TRANSACTION READ ONLY"),
        ("mariadb", "START TRANSACTION READ ONLY"),
    ],
)
def test_a_server_that_may_only_be_read_ends_a_write_at_once(
    request: pytest.FixtureRequest, kind: str, statement: str
) -> None:
    url = request.getfixturevalue(f"{kind}_url")
    store = Store.open(url, options=StoreOptions(sync_on_startup=True))
    tries = []

    def forbid(connection: sa.Connection) -> None:
        tries.append(1)
        connection.exec_driver_sql(statement)

    event.listen(store.engine, "begin", forbid)
    with pytest.raises(StoreUnavailable, match=r"(?i)read.only transaction"):
        new_provider(store)
    assert len(tries) == 1
    store.close()


def test_a_wrong_password_or_database_of_mariadb(
    mariadb_server: Server, mariadb_url: str, refused: Callable[[str], str]
) -> None:
    user = f"guarded_{new_uuid()[:8]}"
    with mariadb_server.administrator() as connection:
        connection.exec_driver_sql(f"CREATE USER {user}@'%%' IDENTIFIED BY 'right'")
        url = mariadb_url.replace("root@", f"{user}:wrong@")
        assert "Access denied for user" in refused(url)
        assert "Access denied for user" in refused(url.replace("wrong", "right"))
        connection.exec_driver_sql(f"DROP USER {user}@'%%'")
    url = sa.make_url(mariadb_url)
    assert "Unknown database" in refused(str(url.set(database="missing")))
    assert "No such file" in refused(str(url.set(query={"ssl_ca": "/nonexistent.pem"})))


@pytest.mark.parametrize("driver", ["postgresql+psycopg", "mysql+pymysql"])
def test_a_server_that_does_not_run_yet_is_waited_for_in_so_many_words(
    driver: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    with socket.socket() as bound:
        # bound and not listening: nobody else can have the port, and connections are refused
        bound.bind(("127.0.0.1", 0))
        url = f"{driver}://user:secret@127.0.0.1:{bound.getsockname()[1]}/placement"
        with pytest.raises(StoreUnavailable, match=r"that\s+the database runs"):
            Store.open(url, options=PATIENT)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == PATIENT.connect_tries - 1
    assert "refused" in lines[0]
    assert "Waiting for it for at most 0.02 s, trying again every 0.01 s" in lines[0]
    assert "secret" not in caplog.text
