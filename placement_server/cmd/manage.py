"""placement-manage: the schema, and checks and repairs of the data."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, cast

from oslo_config import cfg

from compute_agent.programs import configuration_files, log_lines, whole_numbers
from compute_agent.programs.arguments import Argument, arguments
from compute_agent.programs.exit_status import Exit
from compute_agent.programs.module_loading import load
from compute_agent.programs.printable import show_orders
from placement_server import conf as configuration
from placement_server.store.errors import StoreError

PROGRAM: Final = "placement-manage"
DESCRIPTION: Final = "Maintains the database of placement: its schema and its data."

Function = Callable[[cfg.ConfigOpts], int | None]
"""A command; it returns its exit status, or nothing where it always ends well."""


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
        function: str | Function = conf.command.function
        if isinstance(function, str):
            function = cast(Function, load(function))
        return int(function(conf) or Exit.FINE)
    except (StoreError, configuration.InvalidConfiguration) as error:
        print(f"placement-manage: {error}", file=sys.stderr)
        return Exit.FAILED


def new_conf() -> cfg.ConfigOpts:
    """Return the options and commands of the program, before anything is read."""
    return configuration.with_commands(_add_commands)


def _add_commands(subparsers: Any) -> None:
    # without a command, main prints the help instead of an error of the parser
    subparsers.required = False
    add = partial(_add, subparsers)
    db = subparsers.add_parser("db", help="the schema of the database, and repairs of old data")
    db.set_defaults(function=lambda _conf: db.print_help())
    add_action = partial(_add, db.add_subparsers(dest="action", metavar="COMMAND"))
    add_action("sync", "schema:sync", "upgrade the schema to the newest revision")
    add_action("version", "schema:version", "print the current revision of the schema")
    add_action(
        "stamp",
        "schema:stamp",
        "record a revision without changing anything",
        arguments("version REVISION  id of the revision, or head"),
    )
    add_action(
        "downgrade",
        "schema:downgrade",
        "downgrade the schema, by default to that of OpenStack Placement",
        arguments("version REVISION ?  id of the revision; default: that of OpenStack Placement"),
    )
    add_action(
        "online_data_migrations",
        "online_data_migrations:run",
        "repair data that old versions wrote, while services run",
        arguments("--max-count N  run one pass of at most N rows", max_count=_count),
    )
    check = add(
        "audit",
        "audit:run",
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
        "prune:run",
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
    place: str,
    text: str,
    add: Argument = lambda _parser: None,
    **words: Any,
) -> argparse.ArgumentParser:
    """Add a command.

    :param place: module of this folder, and function: each command imports its own needs only.
    """
    parser = commands.add_parser(name, help=text, **words)
    parser.set_defaults(function=f"placement_server.cmd.{place}")
    add(parser)
    return parser


def _count(text: str) -> int:
    # OpenStack's command takes negative numbers and then refuses them with a status of its own
    is_negative = text.startswith("-") and text[1:].isascii() and text[1:].isdecimal()
    return -1 if is_negative else whole_numbers.whole()(text)
