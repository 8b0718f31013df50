"""placement-manage: the schema, and checks and repairs of the data.

placement-manage [--config-file F] [--config-dir D] db sync|version|stamp|downgrade
placement-manage [...] db online_data_migrations [--max-count N]
placement-manage [...] audit [--repair | --watch SECONDS]
placement-manage [...] prune [--dry-run] [--vacuum]
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from oslo_config import cfg
from oslo_log import log
from sqlalchemy.exc import SQLAlchemyError

from compute_agent.programs import configuration_files, whole_numbers
from compute_agent.programs.exit_status import Exit
from compute_agent.programs.printable import show_orders
from placement_server import conf as configuration
from placement_server.cmd import audit, prune
from placement_server.store import data_migrations
from placement_server.store.connection.availability import await_database
from placement_server.store.connection.failures import reason_of
from placement_server.store.connection.options import connection_url, store_options
from placement_server.store.data_migrations import Batch, Migration
from placement_server.store.engine import Engines, create_engines
from placement_server.store.errors import StoreError
from placement_server.store.schema import migration, revision
from placement_server.store.store import Store

LOG = logging.getLogger(__name__)

PROGRAM: Final = "placement-manage"
DESCRIPTION: Final = "Maintains the database of placement: its schema and its data."
BATCH: Final = 50


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    show_orders()
    files, command = configuration_files.split(
        PROGRAM, sys.argv[1:] if arguments is None else arguments
    )
    conf = new_conf()
    try:
        configuration.parse(conf, [*files, *command], prog=PROGRAM, description=DESCRIPTION)
        if conf.command.name is None:
            conf.print_help()
            return Exit.FAILED
        log.setup(conf, "placement")
        status: int = conf.command.run(conf)
    except (StoreError, configuration.InvalidConfiguration) as error:
        print(f"placement-manage: {error}", file=sys.stderr)
        return Exit.FAILED
    except SQLAlchemyError as error:
        print(f"placement-manage: the database failed: {reason_of(error)}", file=sys.stderr)
        return Exit.FAILED
    return status


def new_conf() -> cfg.ConfigOpts:
    """Return the options and commands of the program, before anything is read."""
    return configuration.with_commands(_add_commands)


def _add_commands(subparsers: Any) -> None:
    # without a command, main prints the help instead of an error of the parser
    subparsers.required = False
    db = subparsers.add_parser("db", help="the schema of the database, and repairs of old data")
    db.set_defaults(run=lambda _conf: _help(db))
    actions = db.add_subparsers(dest="action", metavar="COMMAND")

    sync = actions.add_parser("sync", help="upgrade the schema to the newest revision")
    sync.set_defaults(run=_sync)

    version = actions.add_parser("version", help="print the current revision of the schema")
    version.set_defaults(run=_version)

    stamp = actions.add_parser("stamp", help="record a revision without changing anything")
    stamp.add_argument("version", metavar="REVISION", help="id of the revision, or head")
    stamp.set_defaults(run=_stamp)

    downgrade = actions.add_parser(
        "downgrade",
        help="downgrade the schema, by default to that of OpenStack Placement",
    )
    downgrade.add_argument(
        "version",
        nargs="?",
        default=revision.OPENSTACK_REVISION,
        metavar="REVISION",
        help="id of the revision; default: %(default)s",
    )
    downgrade.set_defaults(run=_downgrade)

    migrations = actions.add_parser(
        "online_data_migrations", help="repair data that old versions wrote, while services run"
    )
    migrations.add_argument(
        "--max-count", type=_count, metavar="N", help="run one pass of at most N rows"
    )
    migrations.set_defaults(run=_online_data_migrations)

    check = subparsers.add_parser(
        "audit",
        help="check the data for inconsistencies",
        epilog=(
            f"Exit status: {Exit.FINE} no problems (left), {Exit.FAILED} the check failed, "
            f"{Exit.WOULD_CHANGE} problems that --repair can repair, {Exit.UNFINISHED} problems "
            "that need a decision."
        ),
    )
    how = check.add_mutually_exclusive_group()
    how.add_argument(
        "--repair", action="store_true", help="repair derived data by computing it again"
    )
    how.add_argument(
        "--watch",
        type=whole_numbers.whole(1),
        metavar="SECONDS",
        help="check every so many seconds, print what is new, and serve metrics, until ended",
    )
    check.add_argument(
        "--metrics-bind",
        default=audit.DEFAULT_BIND,
        metavar="ADDRESS:PORT",
        help="where --watch serves metrics; default: %(default)s",
    )
    check.set_defaults(run=_audit)

    pruning = subparsers.add_parser(
        "prune",
        help="delete data that no request needs",
        description=(
            "Deletes old change records, and projects, users, consumer types and aggregates that "
            "have not been used for at least a day. Servers can run at the same time."
        ),
    )
    pruning.add_argument("--dry-run", action="store_true", help="print what would be deleted")
    pruning.add_argument(
        "--vacuum", action="store_true", help="then return the free space of the database"
    )
    pruning.set_defaults(run=_prune)


def _count(text: str) -> int:
    # OpenStack's command takes negative numbers and then refuses them with a status of its own
    is_negative = text.startswith("-") and text[1:].isascii() and text[1:].isdecimal()
    return -1 if is_negative else whole_numbers.whole()(text)


def _help(parser: argparse.ArgumentParser) -> int:
    parser.print_help()
    return 0


@contextlib.contextmanager
def _engines(conf: cfg.ConfigOpts) -> Iterator[Engines]:
    options = store_options(conf).for_maintenance()
    engines = create_engines(connection_url(conf), options)
    try:
        await_database(engines.writer, options)
        yield engines
    finally:
        engines.dispose()


@contextlib.contextmanager
def _store(conf: cfg.ConfigOpts) -> Iterator[Store]:
    store = Store.from_conf(conf, maintenance=True)
    try:
        yield store
    finally:
        store.close()


def _sync(conf: cfg.ConfigOpts) -> int:
    with _engines(conf) as engines:
        migration.upgrade(engines.writer)
    return 0


def _version(conf: cfg.ConfigOpts) -> int:
    with _engines(conf) as engines:
        print(revision.current_revision(engines.reader))
    return 0


def _stamp(conf: cfg.ConfigOpts) -> int:
    with _engines(conf) as engines:
        migration.stamp(engines.writer, conf.command.version)
    return 0


def _downgrade(conf: cfg.ConfigOpts) -> int:
    with _engines(conf) as engines:
        migration.downgrade(engines.writer, conf.command.version)
    return 0


def _online_data_migrations(conf: cfg.ConfigOpts) -> int:
    max_count: int | None = conf.command.max_count
    if max_count is not None and max_count < 1:
        print("Must supply a positive value for max_count")
        return 127
    migrations: list[tuple[str, Migration]] = [
        ("set_root_provider_ids", data_migrations.set_root_provider_ids),
        (
            "create_incomplete_consumers",
            functools.partial(
                data_migrations.create_incomplete_consumers,
                project_id=conf.placement.incomplete_consumer_project_id,
                user_id=conf.placement.incomplete_consumer_user_id,
            ),
        ),
    ]
    with _store(conf) as store:
        return _run_migrations(store, migrations, max_count)


def _run_migrations(
    store: Store, migrations: Sequence[tuple[str, Migration]], max_count: int | None
) -> int:
    """Run batch after batch until nothing is left, or one pass of `max_count` rows."""
    if max_count is None:
        print(f"Running batches of {BATCH} until complete")
    totals = {name: Batch(0, 0) for name, _ in migrations}
    has_failed = False
    while True:
        rows_left = BATCH if max_count is None else max_count
        progress = 0
        for name, migrate in migrations:
            if rows_left < 1:
                break
            try:
                matched_count, migrated_count = store.write(migrate, rows_left)
            except (StoreError, SQLAlchemyError):
                LOG.exception("Error attempting to run %s", name)
                has_failed = True
                continue
            if matched_count:
                print(f"{matched_count} rows matched query {name}, {migrated_count} migrated")
            totals[name] = Batch(
                totals[name].matched_rows + matched_count,
                totals[name].repaired_rows + migrated_count,
            )
            rows_left -= migrated_count
            progress += migrated_count
        if max_count is not None or not progress:
            break
    _print_totals(totals)
    if has_failed and not progress:
        print("Some migrations failed unexpectedly. Check log for details.")
        return 2
    return 1 if max_count is not None and progress else 0


def _print_totals(totals: Mapping[str, Batch]) -> None:
    rows = [("Migration", "Total Found", "Completed")]
    rows += [
        (name, str(batch.matched_rows), str(batch.repaired_rows)) for name, batch in totals.items()
    ]
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


def _prune(conf: cfg.ConfigOpts) -> int:
    with _store(conf) as store:
        for line in prune.show(store) if conf.command.dry_run else prune.prune(store):
            print(line)
        if conf.command.vacuum and not conf.command.dry_run:
            print(f"vacuumed: {', '.join(prune.vacuum(store.engine))}")
    return 0


def _audit(conf: cfg.ConfigOpts) -> int:
    command = conf.command
    with _store(conf) as store:
        if command.watch is not None:
            return audit.watch(store, command.watch, command.metrics_bind)
        return audit.check(store, repair=command.repair)
