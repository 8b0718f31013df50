"""Commands of the parser, and their arguments in the notations that several of them share."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from compute_agent import errors
from compute_agent.cmd import output
from compute_agent.cmd.program import Function
from compute_agent.programs.exit_status import exit_table
from compute_agent.programs.whole_numbers import whole_number

_OF_PROVIDER: Final = re.compile(r"(.+?):([A-Z]\w*[=:]\d+(?:,.*)?)")
MEMBER_OF: Final = "in this aggregate; in:UUID,...: in at least one; ! before it: in none"
_POSITIONALS: Final = {
    "provider": ("PROVIDER", "uuid or name of a resource provider"),
    "consumer": ("UUID", "uuid of the consumer"),
}
"""Arguments of many commands, with the word for their value and their help."""


class BadInput(errors.ComputeAgentError):
    """An argument or a file that cannot be used."""


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
        *positionals: str,
        add_output: Callable[[argparse.ArgumentParser], None] = output.add_options,
    ) -> argparse.ArgumentParser:
        """Add a command.

        :param positionals: names of arguments that many commands have; with `?` they may lack.
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
        for positional in positionals:
            word = positional.removesuffix("?")
            metavar, text = _POSITIONALS[word]
            parser.add_argument(
                word, nargs="?" if word != positional else None, metavar=metavar, help=text
            )
        command = f"{self._group} {name}".strip()
        parser.set_defaults(function=function, command=command, parser=parser)
        return parser


def add_member_of(parser: argparse.ArgumentParser) -> None:
    """Add the option that restricts to aggregates."""
    parser.add_argument(
        "--member-of", action="append", default=[], metavar="[in:]UUID,...", help=MEMBER_OF
    )


def amounts(texts: Sequence[str]) -> dict[str, int]:
    """Read `VCPU=4` or `VCPU:4`, also several with commas between them.

    :raises BadInput: a text is something else.
    """
    amount_of_class: dict[str, int] = {}
    for text in (part for entry in texts for part in entry.split(",")):
        name, separator, number = text.replace(":", "=").partition("=")
        amount = whole_number(number)
        if not (name and separator and amount):
            raise BadInput(f"{text!r} is not an amount of a resource class, such as VCPU=4.")
        amount_of_class[name] = amount
    return amount_of_class


def provider_amounts(text: str) -> tuple[str, dict[str, int]]:
    """Read `PROVIDER:VCPU=4` with any number of amounts; the name of the provider may have colons.

    :raises BadInput: the text is something else.
    """
    match = _OF_PROVIDER.fullmatch(text)
    if match is None:
        raise BadInput(f"{text!r} is not PROVIDER:CLASS=N,..., such as host-1:VCPU=4.")
    return match[1], amounts([match[2]])


def query_amounts(text: str) -> str:
    """Return amounts in the notation of a query string.

    :raises BadInput: the text is something else.
    """
    return ",".join(f"{name}:{amount}" for name, amount in amounts([text]).items())


def parameters(texts: Iterable[str]) -> list[tuple[str, str]]:
    """Read `NAME=VALUE` of a query string; the value may contain further signs.

    :raises BadInput: a text has no `=`.
    """
    pairs = []
    for text in texts:
        name, separator, value = text.partition("=")
        if not (name and separator):
            raise BadInput(f"{text!r} is not a parameter, such as resources=VCPU:4.")
        pairs.append((name, value))
    return pairs
