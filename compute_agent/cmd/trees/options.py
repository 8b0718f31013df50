"""Options that choose what of a tree is shown, the same in every program."""

from __future__ import annotations

import argparse
from typing import Any


def add_view_options(parser: argparse.ArgumentParser) -> None:
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


def given_view_options(namespace: argparse.Namespace) -> list[str]:
    """Return the names of those that were given."""
    options = {
        "--class": namespace.resource_class,
        "--used": namespace.used,
        "--providers": namespace.providers,
        "--traits": namespace.traits,
    }
    return [option for option, value in options.items() if value]


def view_of(namespace: argparse.Namespace) -> dict[str, Any]:
    """Return them as keywords of `view.short_tree`."""
    return {
        "resource_class": namespace.resource_class,
        "only_used": namespace.used,
        "apart": namespace.providers,
        "traits": namespace.traits,
    }
