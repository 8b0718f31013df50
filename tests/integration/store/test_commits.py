"""Lost connections: before the commit nothing happened and the write is made again; during the
commit its outcome is found out; either way the write happens exactly once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa
from msgspec.structs import replace
from sqlalchemy import event
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from placement_server.store import audit, resource_classes
from placement_server.store.allocations import allocations, usages
from placement_server.store.errors import StoreUnavailable
from placement_server.store.store import Store
from tests.integration.store.conftest import (
    OPTIONS,
    generation_of,
    new_provider,
    new_uuid,
    sabotage,
    set_of,
    use_of,
)
from tests.integration.store.interleaving import listening

# SQLite has no connection to lose
pytestmark = pytest.mark.parametrize(
    "module_database_url", ["postgresql", "mariadb"], indirect=True
)


def kill_session(connection: sa.Connection) -> None:
    """End the connection's session from outside, as an administrator would."""
    postgresql = connection.dialect.name == "postgresql"
    own_id = connection.scalar(
        sa.text("SELECT pg_backend_pid()" if postgresql else "SELECT connection_id()")
    )
    other = sa.create_engine(connection.engine.url, isolation_level="AUTOCOMMIT")
    with other.connect() as killer:
        command = "SELECT pg_terminate_backend({})" if postgresql else "KILL CONNECTION {}"
        killer.exec_driver_sql(command.format(own_id))
    other.dispose()


@contextmanager
def session_lost_before(store: Store, text: str) -> Iterator[list[str]]:
    """The session dies once, just before the first statement that contains `text`."""
    lost: list[str] = []

    def on_statement(connection: sa.Connection, _cursor: object, statement: str, *_: Any) -> None:
        if text in statement and not lost:
            lost.append(statement)
            kill_session(connection)

    with listening(store, "before_cursor_execute", on_statement):
        yield lost


@contextmanager
def commit_answer_lost(
    store: Store, monkeypatch: pytest.MonkeyPatch, *, committed: bool
) -> Iterator[list[bool]]:
    """The connection breaks once during COMMIT: after the server did it, or before it could."""
    dialect = store.engine.dialect
    commit = dialect.do_commit
    lost: list[bool] = []

    def do_commit(pooled: Any) -> None:
        if lost:
            commit(pooled)
            return
        lost.append(committed)
        raw = pooled.dbapi_connection
        if committed:
            raw.commit()
        raw.close()
        # the driver complains of the closed connection as it does of a broken one
        raw.commit()

    with monkeypatch.context() as patch:
        patch.setattr(dialect, "do_commit", do_commit)
        yield lost


@pytest.mark.parametrize(
    "statement", ["consumers", "INSERT INTO allocations", "UPDATE inventories", "changes"]
)
def test_a_session_killed_before_the_commit_costs_a_second_try_and_nothing_else(
    store: Store, statement: str
) -> None:
    provider, consumer = new_provider(store, {"VCPU": 2}), new_uuid()
    with session_lost_before(store, statement) as lost:
        store.write(allocations.write, [set_of(consumer, {provider: {"VCPU": 2}}, None)])
    assert lost
    assert use_of(store, provider) == {"VCPU": 2}
    assert generation_of(store, provider) == 2


def test_a_server_that_took_over_with_other_ids_is_asked_for_them(store: Store) -> None:
    provider, project = new_provider(store, {"VCPU": 8}), new_uuid()
    for _ in range(2):
        write = set_of(new_uuid(), {provider: {"VCPU": 1}}, project=project)
        store.write(allocations.write, [write])
    given_again = "UPDATE projects SET external_id = :other WHERE external_id = :project"
    sabotage(store, given_again, other=new_uuid(), project=project)
    with session_lost_before(store, "changes"):
        write = set_of(new_uuid(), {provider: {"VCPU": 3}}, project=project)
        store.write(allocations.write, [write])
    assert store.read(usages.of_project, project) == {"VCPU": 3}


@pytest.mark.parametrize("committed", [True, False])
def test_a_commit_whose_answer_was_lost_happens_exactly_once(
    store: Store, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    provider, consumer = new_provider(store, {"VCPU": 4}), new_uuid()
    with commit_answer_lost(store, monkeypatch, committed=committed) as lost:
        # made again blindly, the second try would find generation 1 and fail
        store.write(allocations.write, [set_of(consumer, {provider: {"VCPU": 2}}, None)])
    assert lost == [committed]
    assert use_of(store, provider) == {"VCPU": 2}
    record, _ = store.read(allocations.of_consumer, consumer)
    assert record is not None
    assert record.generation == 1
    assert store.read(audit.audit) == []


def test_a_session_killed_at_the_commit_costs_a_second_try_and_one_line_in_the_log(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    provider, consumer = new_provider(store, {"VCPU": 2}), new_uuid()
    lost: list[sa.Connection] = []

    def on_commit(connection: sa.Connection) -> None:
        if not lost:
            lost.append(connection)
            kill_session(connection)

    with listening(store, "commit", on_commit):
        store.write(allocations.write, [set_of(consumer, {provider: {"VCPU": 2}}, None)])
    assert use_of(store, provider) == {"VCPU": 2}
    assert generation_of(store, provider) == 2
    (line,) = (record.getMessage() for record in caplog.records if "during a commit" in record.msg)
    assert "\n" not in line


@pytest.mark.parametrize("committed", [True, False])
def test_names_are_created_exactly_once_too(
    store: Store, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    name = f"CUSTOM_{new_uuid().replace('-', '_').upper()}"
    with commit_answer_lost(store, monkeypatch, committed=committed):
        store.write(resource_classes.create, name)
    assert store.read(resource_classes.get, name).name == name


def test_a_database_that_stays_away_is_reported_after_a_bounded_number_of_tries(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []

    def refuse(*_: Any, **__: Any) -> None:
        tries.append(1)
        cause = ConnectionRefusedError(2003, "refused")
        raise OperationalError("connect", {}, cause)

    store.close()  # and with it the connections that it keeps
    with monkeypatch.context() as patch:
        patch.setattr(type(store.engine), "connect", refuse)
        with pytest.raises(StoreUnavailable, match="refused"):
            store.write(allocations.delete, new_uuid())
    assert len(tries) == store.options.claim_tries


@pytest.mark.parametrize(
    "failure",
    [
        OperationalError("connect", {}, ConnectionRefusedError(2003, "refused")),
        PoolTimeout("no connection of the pool became free"),
    ],
)
def test_a_commit_whose_outcome_cannot_be_found_out_is_reported_as_unknown(
    store: Store, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    """Reported as a failure it would be repeated, and refused: it did happen."""
    provider, consumer = new_provider(store, {"VCPU": 4}), new_uuid()
    monkeypatch.setattr(store, "options", replace(OPTIONS, claim_tries=2))
    with commit_answer_lost(store, monkeypatch, committed=True) as lost:
        connect = type(store.engine).connect

        def fail_after_the_commit(engine: sa.Engine) -> sa.Connection:
            if lost:
                raise failure
            return connect(engine)

        monkeypatch.setattr(type(store.engine), "connect", fail_after_the_commit)
        with pytest.raises(StoreUnavailable, match=r"not known .*; read it before") as refusal:
            store.write(allocations.write, [set_of(consumer, {provider: {"VCPU": 2}}, None)])
    monkeypatch.undo()
    assert refusal.value.cause in str(failure)
    assert use_of(store, provider) == {"VCPU": 2}


def test_a_session_that_ends_while_a_store_is_opened_is_replaced(module_database_url: str) -> None:
    """A worker that cannot start ends the whole server."""
    lost: list[str] = []

    def on_statement(connection: sa.Connection, _cursor: object, statement: str, *_: Any) -> None:
        if "version_num" in statement and not lost:
            lost.append(statement)
            kill_session(connection)

    event.listen(sa.Engine, "before_cursor_execute", on_statement)
    try:
        Store.open(module_database_url, options=OPTIONS).close()
    finally:
        event.remove(sa.Engine, "before_cursor_execute", on_statement)
    assert lost
