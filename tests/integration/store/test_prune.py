"""placement-manage prune: what goes, what stays, and what it prints, on each database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from placement_server.cmd import manage, prune
from placement_server.store import unused
from placement_server.store.allocations import allocations
from placement_server.store.errors import ConcurrentUpdate, StoreUnavailable
from placement_server.store.providers import aggregates, traits
from placement_server.store.records import ANY, ConsumerWrite
from placement_server.store.store import Store
from placement_server.store.tables import changes, consumer_types, placement_aggregates, projects
from tests.fixtures.allocations import new_uuid
from tests.integration.store.conftest import OPTIONS, new_provider, opened

Run = Callable[..., str]


@pytest.fixture
def store(migrated_database_url: str) -> Iterator[Store]:
    with opened(migrated_database_url) as store:
        yield store


@pytest.fixture
def run(
    migrated_database_url: str,
    configured: Callable[[str], list[str]],
    capsys: pytest.CaptureFixture[str],
) -> Run:
    def runner(*arguments: str) -> str:
        assert manage.main([*configured(migrated_database_url), "prune", *arguments]) == 0
        return capsys.readouterr().out

    return runner


def claim(store: Store, provider: str, consumer: str, amount: int = 1) -> None:
    held = {provider: {"VCPU": amount}} if amount else {}
    write = ConsumerWrite(consumer, held, "a project", "a user", "A_TYPE", ANY)
    store.write(allocations.write, [write])


def column(store: Store, values: Any) -> list[Any]:
    return list(store.read(lambda tx: tx.execute(sa.select(values)).scalars().all()))


def age(store: Store, table: sa.Table, by: timedelta) -> None:
    """Make the marks of a table older."""
    rows = store.read(lambda tx: tx.execute(sa.select(table.c.id, table.c.updated_at)).all())
    for row_id, at in rows:
        statement = (
            sa.update(table)
            .where(table.c.id == row_id)
            .values(created_at=at - 2 * by, updated_at=at - by)
        )
        store.write(lambda tx, statement=statement: tx.execute(statement))


def test_what_is_out_of_use_is_deleted_a_day_after_it_was_found(store: Store, run: Run) -> None:
    consumer = new_uuid()
    provider = new_provider(store, {"VCPU": 4})
    store.write(aggregates.replace, provider, [new_uuid()], generation=None)
    claim(store, provider, consumer)
    for table in (projects, placement_aggregates):
        age(store, table, timedelta(days=2))
    age(store, consumer_types, timedelta(hours=1))
    # in use, although it was marked long ago
    assert "projects: 0 deleted" in run()
    claim(store, provider, consumer, 0)
    store.write(aggregates.replace, provider, [], generation=None)
    assert "projects: 1 would be deleted" in run("--dry-run")
    assert column(store, projects.c.external_id) == ["a project"]
    printed = run()
    assert "projects: 1 deleted" in printed
    assert "aggregates: 1 deleted" in printed
    assert "consumer types: 0 deleted; out of use: 0 from now on, 1 for less than a day" in printed
    assert column(store, projects.c.id) == column(store, placement_aggregates.c.id) == []
    assert column(store, consumer_types.c.name) == ["A_TYPE"]


def test_what_is_used_again_after_it_was_marked_stays(
    store: Store, migrated_database_url: str, run: Run
) -> None:
    aggregate, provider = new_uuid(), new_provider(store, {"VCPU": 4})
    for uuids in ([aggregate], []):
        store.write(aggregates.replace, provider, uuids, generation=None)
    for amount in (1, 0):
        claim(store, provider, new_uuid(), amount)
    run()
    for table in (projects, placement_aggregates):
        assert column(store, table.c.id)
        age(store, table, timedelta(hours=23))
        assert all(column(store, unused.is_marked(table)))
    # a worker that does not remember the ids
    with opened(migrated_database_url) as other:
        claim(other, provider, new_uuid())
        other.write(aggregates.replace, provider, [aggregate], generation=None)
    for marked in (unused.is_marked(projects), unused.is_marked(placement_aggregates)):
        assert not any(column(store, marked))


def test_a_row_that_is_deleted_while_its_mark_is_removed_is_looked_up_again(store: Store) -> None:
    with pytest.raises(ConcurrentUpdate):
        store.write(unused.unmark, projects, [12345])


def test_old_change_records_go_and_the_room_is_given_back(
    store: Store, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("placement_server.store.changes.changes.KEPT_ROWS", 1)
    monkeypatch.setattr("placement_server.store.changes.changes.KEPT_FOR", timedelta(hours=-1))
    for _ in range(5):
        new_provider(store)
    before = len(column(store, changes.c.id))
    printed = run("--dry-run", "--vacuum")
    assert f"change records: {before - 1} would be deleted" in printed
    assert "vacuumed" not in printed
    assert len(column(store, changes.c.id)) == before
    printed = run("--vacuum")
    assert f"change records: {before - 1} deleted" in printed
    assert "vacuumed: agent_reports, allocations, changes," in printed
    assert len(column(store, changes.c.id)) == 1


LOCK_FOR_NO_TIME = {
    "sqlite": "PRAGMA busy_timeout = 0",
    "postgresql": "SET lock_timeout = 1",
    "mysql": "SET SESSION lock_wait_timeout = 0",
}
LOCK = {
    "sqlite": "DELETE FROM allocations",
    "postgresql": "LOCK TABLE allocations",
    "mysql": "SELECT * FROM allocations",
}


def test_room_that_the_database_does_not_give_back_is_an_error(store: Store) -> None:
    family = store.engine.dialect.name
    hasty = Store.open(store.url, options=OPTIONS)

    @sa.event.listens_for(hasty.engine, "connect")
    def on_connect(dbapi_connection: Any, _record: object) -> None:
        cursor = dbapi_connection.cursor()
        cursor.execute(LOCK_FOR_NO_TIME[family])
        cursor.close()
        dbapi_connection.commit()

    hasty.engine.dispose()
    with store.engine.begin() as connection:
        connection.exec_driver_sql(LOCK[family])
        with pytest.raises(StoreUnavailable, match="giving room back"):
            prune.vacuum(hasty.engine)
    hasty.close()


def test_traits_that_nobody_has_are_only_named(store: Store, run: Run) -> None:
    store.write(traits.ensure, "CUSTOM_NEVER")
    assert "note: 1 custom traits belong to no provider" in run()
    assert store.read(traits.list_names, names=["CUSTOM_NEVER"])
