"""Conditions about lists of values, as the planner of SQLite sees them."""

from __future__ import annotations

from sqlalchemy import create_engine, select

from placement_server.store.dialects.batches import among
from placement_server.store.tables import resource_providers

_C = resource_providers.c


def test_an_index_serves_the_condition() -> None:
    statement = select(_C.name).where(among(_C.uuid, "uuids"), _C.generation == 1)
    engine = create_engine("sqlite://")
    text = statement.params(uuids=["a", "b"]).compile(
        engine, compile_kwargs={"literal_binds": True}
    )
    with engine.begin() as connection:
        resource_providers.create(connection)
        ((*_, plan),) = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}")
    assert plan.startswith("SEARCH resource_providers USING INDEX")
