"""Arguments of commands, declared by lines as a help shows them.

    file FILE ? (-)      an argument by position, which may be left out, and its default
    -n --limit N (10)    an option with a value
    --node NODE *        an option that may be given several times
    --failed HOST +      one that has to be given, once or several times
    --project ID !       one that has to be given once
    --sort {name,age}    one with one of these values
    --dry-run            one without a value
    --in:inside HOST     one with another name in the namespace

The help follows after two spaces or more, and goes on in lines that are indented.
"""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from compute_agent.programs.whole_numbers import port, positive

Container = argparse._ActionsContainer
"""A parser, or a group of its options."""

Argument = Callable[[Container], object]
"""Adds an argument, or several."""

_LINE: Final = re.compile(
    r"(?P<names>\w\S*|-[\w-]+(?: -[\w-]+)*)"
    r"(?::(?P<name>\w+))?"
    r"(?: (?P<value>[^\s(?*+!]\S*))?"
    r"(?: (?P<count>[?*+!]))?"
    r"(?: \((?P<default>[^)]*)\))?"
    r" {2,}(?P<help>.+)"
)


def parameter(text: str) -> tuple[str, str]:
    """Read NAME=VALUE of a query string; the value may contain further signs."""
    name, separator, value = text.partition("=")
    if not (name and separator):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE, such as member_of=UUID")
    return name, value


_TYPES: Final[Mapping[str, Callable[[str], Any]]] = {
    "N": positive,
    "SECONDS": positive,
    "PORT": port,
    "NAME=VALUE": parameter,
}
"""Types of values by their names; others are texts."""


def arguments(lines: str, **types: Callable[[str], Any]) -> Argument:
    """Return what adds the arguments that some lines declare.

    :param types: of values, by the name of their argument in the namespace.
    """

    def add(container: Container) -> None:
        for line in re.sub(r"\n +", " ", inspect.cleandoc(lines)).split("\n"):
            match = _LINE.fullmatch(line)
            assert match is not None, f"{line!r} declares no argument"
            _add(container, types, **match.groupdict())

    return add


def _add(
    container: Container,
    types: Mapping[str, Callable[[str], Any]],
    *,
    names: str,
    name: str | None,
    value: str | None,
    count: str | None,
    default: str | None,
    help: str,
) -> None:
    *_, last = split_names = names.split()
    is_option = last.startswith("-")
    if default and "default" not in help:
        help += "; default: %(default)s"
    keywords: dict[str, Any] = {"help": help} | ({"dest": name} if name else {})
    if value is None:
        container.add_argument(*split_names, action="store_true", **keywords)
        return
    if value.startswith("{"):
        keywords["choices"] = value[1:-1].split(",")
    else:
        keywords["metavar"] = value
        keywords["type"] = types.get(name or last.lstrip("-").replace("-", "_")) or _TYPES.get(
            value
        )
    if default is not None:
        keywords["default"] = default
    if not is_option:
        keywords["nargs"] = count
    elif count is not None:
        keywords["required"] = count in "+!"
        if count in "*+":
            keywords |= {"action": "append", "default": []}
    container.add_argument(*split_names, **keywords)
