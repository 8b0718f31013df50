"""placement-manage db online_data_migrations: repairs of what old versions wrote."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from oslo_config import cfg
from sqlalchemy.exc import SQLAlchemyError

from placement_server.cmd.database import open_store
from placement_server.store import data_migrations
from placement_server.store.data_migrations import Migration
from placement_server.store.errors import StoreError
from placement_server.store.store import Store

LOG = logging.getLogger(__name__)

BATCH: Final = 50


def run(conf: cfg.ConfigOpts) -> int:
    max_count: int | None = conf.command.max_count
    if max_count is not None and max_count < 1:
        print("Must supply a positive value for max_count")
        return 127
    migrations: list[tuple[str, Migration]] = [
        ("set_root_provider_ids", data_migrations.set_root_provider_ids),
        (
            "create_incomplete_consumers",
            partial(
                data_migrations.create_incomplete_consumers,
                project_id=conf.placement.incomplete_consumer_project_id,
                user_id=conf.placement.incomplete_consumer_user_id,
            ),
        ),
    ]
    with open_store(conf) as store:
        return _run_migrations(store, migrations, max_count)


def _run_migrations(
    store: Store, migrations: Sequence[tuple[str, Migration]], max_count: int | None
) -> int:
    """Run batch after batch until nothing is left, or one pass of `max_count` rows."""
    if max_count is None:
        print(f"Running batches of {BATCH} until complete")
    totals = dict.fromkeys((name for name, _ in migrations), 0)
    has_failed = False
    while True:
        rows_left = BATCH if max_count is None else max_count
        progress = 0
        for name, migrate in migrations:
            if rows_left < 1:
                break
            try:
                count = store.write(migrate, rows_left)
            except (StoreError, SQLAlchemyError):
                LOG.exception("Error attempting to run %s", name)
                has_failed = True
                continue
            if count:
                print(f"{count} rows matched query {name}, {count} migrated")
            totals[name] += count
            rows_left -= count
            progress += count
        if max_count is not None or not progress:
            break
    _print_totals(totals)
    if has_failed and not progress:
        print("Some migrations failed unexpectedly. Check log for details.")
        return 2
    return 1 if progress else 0


def _print_totals(totals: Mapping[str, int]) -> None:
    rows = [("Migration", "Total Found", "Completed")]
    rows += [(name, str(count), str(count)) for name, count in totals.items()]
    for line in _text_table(rows):
        print(line)


def _text_table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Return the lines of a table, as OpenStack's command line tools draw it.

    The first row is its heading, the first column left-aligned.
    """
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    rule = "+" + "+".join("-" * (width + 2) for width in widths) + "+"
    yield rule
    for number, row in enumerate(rows):
        cells = [
            cell.center(width) if number == 0 or column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "| " + " | ".join(cells) + " |"
        if number == 0:
            yield rule
    yield rule
