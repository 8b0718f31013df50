"""The form in which a tree is shown, and the options that choose it, the same in every program."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class TreeForm:
    """The parts of a tree that are shown.

    :ivar full: every provider with a table of its inventories, its traits and aggregates.
    :ivar resource_class: only providers that have this class; None for all.
    :ivar only_used: only providers of which something is used.
    :ivar apart: a line for each of equal providers too, with its uuid.
    :ivar traits: the traits below each line; those of a full tree are left out by False.
    :ivar in_bytes: memory and disk in bytes, and not in GiB beside the units of their classes.
    :ivar bars: a bar of what is used beside each amount.
    :ivar tables: uuids of providers whose tables a full tree has; empty for all.
    """

    full: bool = False
    resource_class: str | None = None
    only_used: bool = False
    apart: bool = False
    traits: bool = False
    in_bytes: bool = False
    bars: bool = False
    tables: Collection[str] = ()


def add_form_options(parser: argparse.ArgumentParser) -> None:
    """Add the options to a command that shows a tree."""
    parser.add_argument(
        "--class", metavar="CLASS", dest="resource_class", help="only providers that have CLASS"
    )
    parser.add_argument("--used", action="store_true", help="only providers that are in use")
    parser.add_argument(
        "--providers",
        action="store_true",
        help="one line for each provider, with uuid, also for equal providers",
    )
    parser.add_argument("--traits", action="store_true", help="also show the traits")
    add_bytes_option(parser)


def add_bytes_option(parser: argparse.ArgumentParser) -> None:
    """Add the option for scripts to a command that shows amounts."""
    parser.add_argument(
        "--bytes", action="store_true", dest="in_bytes", help="memory and disk in bytes"
    )


def given_form_options(namespace: argparse.Namespace) -> list[str]:
    """Return the names of those that were given."""
    options = {
        "--class": namespace.resource_class,
        "--used": namespace.used,
        "--providers": namespace.providers,
        "--traits": namespace.traits,
        "--bytes": namespace.in_bytes,
    }
    return [option for option, value in options.items() if value]


def form_of(namespace: argparse.Namespace, **others: Any) -> TreeForm:
    """Return the form that the options choose, with fields that have no option."""
    return TreeForm(
        resource_class=namespace.resource_class,
        only_used=namespace.used,
        apart=namespace.providers,
        in_bytes=namespace.in_bytes,
        traits=namespace.traits or bool(others.get("full")),
        **others,
    )
