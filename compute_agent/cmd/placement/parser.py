"""The commands and groups of commands of one parser."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from compute_agent.cmd import output
from compute_agent.programs.exit_status import exit_table

Function = Callable[[argparse.Namespace], int]


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
        function: Function,
        help: str,
        add_output: Callable[[argparse.ArgumentParser], None] = output.add_options,
    ) -> argparse.ArgumentParser:
        """Add a command.

        :param add_output: adds its options of output.
        :returns: the parser of its arguments.
        """
        parser = self._parsers.add_parser(
            name,
            help=help,
            description=f"{help[:1].upper()}{help[1:]}.",
            epilog=exit_table(),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        add_output(parser)
        command = f"{self._group} {name}".strip()
        parser.set_defaults(function=function, command=command, parser=parser)
        return parser
