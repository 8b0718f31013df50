"""An index after its connections broke, and after a failover to a database that lacks writes."""

from __future__ import annotations

import uuid

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import OperationalError

from placement_server.candidates.index.follower import IndexFollower
from placement_server.store.connection import failures
from placement_server.store.store import Store
from placement_server.store.tables import allocations, changes, inventories
from tests.integration.candidates.follower_worker import content
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


NO_SUCH_THREAD = 1094
"""The error of MariaDB for a session that was closed, and ended after it was listed."""

ON_EACH_DATABASE = pytest.mark.parametrize(
    "migrated_database_url", ["sqlite", "postgresql", "mariadb"], indirect=True
)


def lose_first_claim_since(engine: sa.Engine, last: int) -> None:
    """Leave the database as a standby has it that got the later claims only."""
    number = sa.select(sa.func.min(changes.c.id)).where(changes.c.id > last)
    with engine.begin() as connection:
        lost = connection.scalar(number)
        root = connection.scalar(sa.select(changes.c.root_provider_id).where(changes.c.id == lost))
        connection.execute(sa.delete(changes).where(changes.c.id == lost))
        of_root = allocations.c.resource_provider_id == root
        connection.execute(sa.delete(allocations).where(of_root))
        unused = sa.update(inventories).where(inventories.c.resource_provider_id == root)
        connection.execute(unused.values(used=0))


def end_sessions(engine: sa.Engine) -> None:
    """End all sessions but one's own."""
    with engine.connect() as connection:
        rows = connection.exec_driver_sql(END_SESSIONS[engine.dialect.name]).all()
        for (command,) in rows if engine.dialect.name == "mysql" else ():
            try:
                connection.exec_driver_sql(command)
            except OperationalError as error:
                if failures.code_of(error) != NO_SUCH_THREAD:
                    raise


class Site:
    """A database with two hosts, and an index of it."""

    def __init__(self, url: str) -> None:
        self.store = Store.open(url)
        self.engine = sa.create_engine(url, poolclass=sa.NullPool)
        self.hosts = [create(self.store, {"VCPU": 8}) for _ in range(2)]
        self.follower = IndexFollower(self.store)
        self.follower.index()

    def __enter__(self) -> Site:
        return self

    def __exit__(self, *exception: object) -> None:
        self.store.close()

    def last_change(self) -> int:
        with self.engine.connect() as connection:
            return connection.execute(sa.select(sa.func.max(changes.c.id))).scalar_one()

    def claim_all(self) -> None:
        """Claim from each host, one after the other, and let the index follow."""
        for host in self.hosts:
            claim(self.store, str(uuid.uuid4()), {host: {"VCPU": 1}})
        self.follower.index()


@pytest.mark.parametrize("migrated_database_url", ["postgresql", "mariadb"], indirect=True)
def test_a_claim_that_a_promoted_standby_lacks_is_forgotten(migrated_database_url: str) -> None:
    with Site(migrated_database_url) as site:
        last = site.last_change()
        site.claim_all()
        lose_first_claim_since(site.engine, last)
        end_sessions(site.engine)
        assert content(site.follower.index()) == content(IndexFollower(site.store).index())


@ON_EACH_DATABASE
def test_a_lost_claim_is_forgotten_when_connections_are_made_again(
    migrated_database_url: str,
) -> None:
    with Site(migrated_database_url) as site:
        last = site.last_change()
        site.claim_all()
        lose_first_claim_since(site.engine, last)
        # As a pool does with old connections, before anybody finds them broken.
        site.store.close()
        assert content(site.follower.index()) == content(IndexFollower(site.store).index())


@ON_EACH_DATABASE
def test_a_write_that_another_one_replaced_is_forgotten_though_no_connection_broke(
    migrated_database_url: str,
) -> None:
    with Site(migrated_database_url) as site:
        site.claim_all()
        last = site.last_change()
        with site.engine.begin() as connection:
            another = sa.update(changes).where(changes.c.id == last)
            connection.execute(another.values(write_id=changes.c.write_id - 1))
            connection.execute(sa.update(inventories).values(used=5))
        assert content(site.follower.index()) == content(IndexFollower(site.store).index())


@pytest.mark.parametrize("migrated_database_url", ["postgresql", "mariadb"], indirect=True)
def test_a_connection_that_broke_costs_no_reading_of_all_trees(
    migrated_database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "placement_server.candidates")
    with Site(migrated_database_url) as site:
        caplog.clear()
        for _ in range(2):
            end_sessions(site.engine)
            site.claim_all()
            site.follower.index()
        assert "Read all" not in caplog.text
        assert content(site.follower.index()) == content(IndexFollower(site.store).index())
