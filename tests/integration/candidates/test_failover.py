"""An index after a failover to a database that lacks the last writes."""

from __future__ import annotations

import uuid

import pytest
import sqlalchemy as sa

from placement_server.candidates.index.feed import Feed
from placement_server.store.store import Store
from placement_server.store.tables import allocations, changes, inventories
from tests.integration.candidates.feed_worker import content
from tests.integration.candidates.writes import claim, create

END_SESSIONS = {
    "postgresql": (
        "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    ),
    "mysql": (
        "SELECT CONCAT('KILL CONNECTION ', id) FROM information_schema.processlist "
        "WHERE db = DATABASE() AND id <> CONNECTION_ID()"
    ),
}


def lose_first_claim_since(engine: sa.Engine, last: int) -> None:
    """Leave the database as a standby has it that got the later claims only, and end sessions."""
    number = sa.select(sa.func.min(changes.c.id)).where(changes.c.id > last)
    with engine.begin() as connection:
        lost = connection.scalar(number)
        root = connection.scalar(sa.select(changes.c.root_provider_id).where(changes.c.id == lost))
        connection.execute(sa.delete(changes).where(changes.c.id == lost))
        of_root = allocations.c.resource_provider_id == root
        connection.execute(sa.delete(allocations).where(of_root))
        unused = sa.update(inventories).where(inventories.c.resource_provider_id == root)
        connection.execute(unused.values(used=0))
    with engine.connect() as connection:
        rows = connection.exec_driver_sql(END_SESSIONS[engine.dialect.name]).all()
        for (command,) in rows if engine.dialect.name == "mysql" else ():
            connection.exec_driver_sql(command)


@pytest.mark.parametrize("migrated_database_url", ["postgresql", "mariadb"], indirect=True)
def test_a_claim_that_a_promoted_standby_lacks_is_forgotten(migrated_database_url: str) -> None:
    store = Store.open(migrated_database_url)
    engine = sa.create_engine(migrated_database_url, poolclass=sa.NullPool)
    feed = Feed(store)
    hosts = [create(store, {"VCPU": 8}) for _ in range(2)]
    feed.index()
    with engine.connect() as connection:
        last = connection.scalar(sa.select(sa.func.max(changes.c.id)))
    assert last is not None
    for host in hosts:
        claim(store, str(uuid.uuid4()), {host: {"VCPU": 3}})
    feed.index()
    lose_first_claim_since(engine, last)
    assert content(feed.index()) == content(Feed(store).index())
    store.close()
