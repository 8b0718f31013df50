"""placement-manage prune: deletes what no request needs any more, and gives the room back."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

from oslo_config import cfg
from sqlalchemy import Engine

from placement_server.cmd.database import open_store
from placement_server.store import unused
from placement_server.store.changes import changes
from placement_server.store.errors import StoreUnavailable
from placement_server.store.providers import traits
from placement_server.store.schema.names import CUSTOM_PREFIX
from placement_server.store.store import Store
from placement_server.store.tables import metadata
from placement_server.store.transaction import ReadTransaction, translate_failures

_NAMES: Final = {
    "projects": "projects",
    "users": "users",
    "consumer_types": "consumer types",
    "placement_aggregates": "aggregates",
}


def run(conf: cfg.ConfigOpts) -> None:
    with open_store(conf) as store:
        for line in show(store) if conf.command.dry_run else prune(store):
            print(line)
        if conf.command.vacuum and not conf.command.dry_run:
            print(f"vacuumed: {', '.join(vacuum(store.engine))}")


def prune(store: Store) -> Iterator[str]:
    """Delete; yield a line for each kind of row."""
    yield f"change records: {store.write(changes.prune)} deleted"
    for table, name in _NAMES.items():
        yield _line(name, store.write(unused.prune, table), "deleted")
    yield from _notes(store)


def show(store: Store) -> Iterator[str]:
    """Yield what `prune` would do, a line for each kind of row."""
    now = datetime.now(UTC).replace(tzinfo=None)
    yield f"change records: {store.read(changes.old_records, now)} would be deleted"
    for table, rows in store.read(unused.find, now).items():
        yield _line(_NAMES[table], rows, "would be deleted")
    yield from _notes(store)


def _line(name: str, rows: unused.UnusedRows, done: str) -> str:
    return (
        f"{name}: {len(rows.due_ids)} {done}; out of use: {len(rows.unmarked_ids)} from now on, "
        f"{len(rows.marked_ids)} for less than a day"
    )


def _notes(store: Store) -> Iterator[str]:
    custom = store.read(_custom_traits_of_nobody)
    if custom:
        yield (
            f"note: {custom} custom traits belong to no provider; somebody may want them, so they "
            "stay: DELETE /traits/{name}"
        )


def _custom_traits_of_nobody(tx: ReadTransaction) -> int:
    return len(traits.list_names(tx, prefix=CUSTOM_PREFIX, associated=False))


def vacuum(engine: Engine) -> list[str]:
    """Rewrite or clean the tables, as the database does it; requests go on meanwhile.

    On SQLite writers wait until it is done.

    :returns: the tables.
    :raises StoreUnavailable: the database did not do it, or not for all tables.
    """
    tables = sorted(metadata.tables)
    family = engine.dialect.name
    statement = {
        "sqlite": "VACUUM",
        "postgresql": f"VACUUM (ANALYZE) {', '.join(tables)}",
    }.get(family, f"OPTIMIZE TABLE {', '.join(tables)}")
    # none of them is allowed in a transaction
    options: dict[str, Any] = (
        {"store_begin": None} if family == "sqlite" else {"isolation_level": "AUTOCOMMIT"}
    )
    doing = "giving room back"
    with (
        translate_failures(doing),
        engine.connect().execution_options(**options) as connection,
    ):
        result = connection.exec_driver_sql(statement)
        rows = result.all() if result.returns_rows else []
    # MySQL answers with rows, its errors among them
    errors = [f"{table}: {text}" for table, _, kind, text in rows if kind.lower() == "error"]
    if errors:
        raise StoreUnavailable(f"The database failed while {doing}: {'; '.join(errors)}")
    return tables
