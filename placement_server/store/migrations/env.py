"""Alembic's entry point: migrations run on the connection that `store.schema` passes."""

from __future__ import annotations

from alembic import context

from placement_server.store.tables import metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, render_as_batch=False)
with context.begin_transaction():
    context.run_migrations()
