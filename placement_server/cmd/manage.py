"""placement-manage: the schema, and checks and repairs of the data."""

from __future__ import annotations

import argparse
import contextlib
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from oslo_config import cfg
from sqlalchemy.exc import SQLAlchemyError

from compute_agent.programs import configuration_files, log_lines, whole_numbers
from compute_agent.programs.arguments import Argument, arguments
from compute_agent.programs.exit_status import Exit
from compute_agent.programs.printable import show_orders
from placement_server import conf as configuration
from placement_server.cmd import audit, prune
from placement_server.store import data_migrations
from placement_server.store.connection.failures import await_database, reason_of
from placement_server.store.connection.options import connection_url, store_options
from placement_server.store.data_migrations import Migration
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
        log_lines.set_up(conf, "placement", configuration.InvalidConfiguration)
        status = int(conf.command.run(conf) or Exit.FINE)
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
    add = partial(_add, subparsers)
    db = subparsers.add_parser("db", help="the schema of the database, and repairs of old data")
    db.set_defaults(run=lambda _conf: db.print_help())
    add_action = partial(_add, db.add_subparsers(dest="action", metavar="COMMAND"))
    add_action("sync", _sync, "upgrade the schema to the newest revision")
    add_action("version", _version, "print the current revision of the schema")
    add_action(
        "stamp",
        _stamp,
        "record a revision without changing anything",
        arguments("version REVISION  id of the revision, or head"),
    )
    add_action(
        "downgrade",
        _downgrade,
        "downgrade the schema, by default to that of OpenStack Placement",
        arguments(f"version REVISION ? ({revision.OPENSTACK_REVISION})  id of the revision"),
    )
    add_action(
        "online_data_migrations",
        _online_data_migrations,
        "repair data that old versions wrote, while services run",
        arguments("--max-count N  run one pass of at most N rows", max_count=_count),
    )
    check = add(
        "audit",
        _audit,
        "check the data for inconsistencies",
        epilog=(
            f"Exit status: {Exit.FINE} no problems (left), {Exit.FAILED} the check failed, "
            f"{Exit.WOULD_CHANGE} problems that --repair can repair, {Exit.UNFINISHED} problems "
            "that need a decision."
        ),
    )
    arguments(
        """
        --repair         repair derived data by computing it again
        --watch SECONDS  check every so many seconds, print what is new, and serve metrics, until
                         ended
        """
    )(check.add_mutually_exclusive_group())
    metrics = "--metrics-bind ADDRESS:PORT (127.0.0.1:9103)  where --watch serves metrics"
    arguments(metrics)(check)
    add(
        "prune",
        _prune,
        "delete data that no request needs",
        arguments(
            """
            --dry-run  print what would be deleted
            --vacuum   then return the free space of the database
            """
        ),
        description=(
            "Deletes old change records, and projects, users, consumer types and aggregates that "
            "have not been used for at least a day. Servers can run at the same time."
        ),
    )


def _add(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    run: Callable[[cfg.ConfigOpts], int | None],
    text: str,
    add: Argument = lambda _parser: None,
    **words: Any,
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=text, **words)
    parser.set_defaults(run=run)
    add(parser)
    return parser


def _count(text: str) -> int:
    # OpenStack's command takes negative numbers and then refuses them with a status of its own
    is_negative = text.startswith("-") and text[1:].isascii() and text[1:].isdecimal()
    return -1 if is_negative else whole_numbers.whole()(text)


@contextlib.contextmanager
def _engines(conf: cfg.ConfigOpts) -> Iterator[Engines]:
    options = store_options(conf).for_maintenance()
    engines = create_engines(connection_url(conf), options)
    try:
        await_database(engines.writer, options)
        yield engines
    finally:
        engines.dispose()


def _store(conf: cfg.ConfigOpts) -> contextlib.closing[Store]:
    return contextlib.closing(Store.from_conf(conf, maintenance=True))


def _sync(conf: cfg.ConfigOpts) -> None:
    with _engines(conf) as engines:
        migration.upgrade(engines.writer)


def _version(conf: cfg.ConfigOpts) -> None:
    with _engines(conf) as engines:
        print(revision.current_revision(engines.reader))


def _stamp(conf: cfg.ConfigOpts) -> None:
    with _engines(conf) as engines:
        migration.stamp(engines.writer, conf.command.version)


def _downgrade(conf: cfg.ConfigOpts) -> None:
    with _engines(conf) as engines:
        migration.downgrade(engines.writer, conf.command.version)


def _online_data_migrations(conf: cfg.ConfigOpts) -> int:
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
    with _store(conf) as store:
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


def _prune(conf: cfg.ConfigOpts) -> None:
    with _store(conf) as store:
        for line in prune.show(store) if conf.command.dry_run else prune.prune(store):
            print(line)
        if conf.command.vacuum and not conf.command.dry_run:
            print(f"vacuumed: {', '.join(prune.vacuum(store.engine))}")


def _audit(conf: cfg.ConfigOpts) -> int:
    command = conf.command
    with _store(conf) as store:
        if command.watch is not None:
            return audit.watch(store, command.watch, command.metrics_bind)
        return audit.check(store, repair=command.repair)
