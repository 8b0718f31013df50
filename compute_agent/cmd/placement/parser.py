"""Commands of the parser, each with a client of the placement that its options name."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any, Final

from compute_agent.cmd import program
from compute_agent.cmd.placement.client import Client, connect
from compute_agent.cmd.shared_options import JSON, TABLE_OPTIONS
from compute_agent.programs.arguments import Argument
from compute_agent.programs.exit_status import exit_table

PROVIDER: Final = "provider PROVIDER  uuid or name of a resource provider"
OPTIONAL_PROVIDER: Final = PROVIDER.replace("PROVIDER", "PROVIDER ?")
CONSUMER: Final = "consumer UUID  uuid of the consumer"


class Commands:
    """The commands of a parser, or of a group in it.

    :param group: the words before the command.
    """

    def __init__(self, parser: argparse.ArgumentParser, group: str = "") -> None:
        self._group = group
        self._parsers = parser.add_subparsers(
            dest="verb" if group else "noun", required=True, metavar="COMMAND"
        )

    def group(self, name: str, help: str) -> Commands:
        """Add a group of commands about one kind of thing."""
        return Commands(self._parsers.add_parser(name, help=help, description=help), name)

    def add(
        self,
        name: str,
        function: Callable[[argparse.Namespace, Client], int | None],
        help: str,
        *declared: str | Argument,
        output: Sequence[str] = (TABLE_OPTIONS, JSON),
        **defaults: Any,
    ) -> None:
        """Add a command that asks placement.

        :param output: its options of output.
        :param defaults: further values for its function.
        """

        def run(namespace: argparse.Namespace) -> int | None:
            if namespace.json:
                namespace.format = "json"
            return function(namespace, connect(namespace))

        self.add_local(name, run, help, *output, *declared, **defaults)

    def add_local(
        self,
        name: str,
        function: program.Function,
        help: str,
        *declared: str | Argument,
        **defaults: Any,
    ) -> None:
        """Add a command that needs no placement."""
        command = f"{self._group} {name}".strip()
        parser = program.add_command(
            self._parsers, name, function, help, *declared, epilog=exit_table()
        )
        parser.set_defaults(command=command, **defaults)
