"""Options of the commands that describe a request: `claim`, `explain` and `make-room`."""

from __future__ import annotations

import argparse
from typing import Final

DEFAULT_OWNER = "compute-scheduler"

_REPEATABLE: Final = (
    (
        "--resources",
        "CLASS=N,...",
        "amounts of resources, for example VCPU=2,MEMORY_MB=512 (or VCPU:2,MEMORY_MB:512)",
    ),
    (
        "--group",
        "GROUP:CLASS=N,...",
        "amounts that one provider must have together, for example GPU:VGPU=1",
    ),
    (
        "--required",
        "[GROUP:]TRAIT,...",
        "traits that a provider must have; in:A,B: at least one of them",
    ),
    ("--forbidden", "[GROUP:]TRAIT,...", "traits that a provider must not have"),
    (
        "--member-of",
        "[GROUP:]UUID,...",
        "only in one of these aggregates; !UUID,...: in none of them",
    ),
    ("--in-tree", "[GROUP:]UUID", "only in the tree of this provider"),
    ("--root-required", "TRAIT,...", "traits that the host must have; !TRAIT: must not have"),
    ("--same-subtree", "GROUP,...", "groups whose providers must be in the subtree of one of them"),
)
_OF_CONSUMER: Final = (
    ("--project", "ID", DEFAULT_OWNER),
    ("--user", "ID", DEFAULT_OWNER),
    ("--type", "TYPE", "INSTANCE"),
)


def add_request_options(command: argparse.ArgumentParser) -> None:
    """Add the options that describe a request to a command."""
    for option, metavar, help_ in _REPEATABLE:
        command.add_argument(option, metavar=metavar, help=help_, action="append", default=[])
    command.add_argument(
        "--group-policy",
        choices=["none", "isolate"],
        default="none",
        help="isolate: each group on another provider; default: %(default)s",
    )
    command.add_argument("--host", default="", metavar="HOST", help="only this host")
    for option, metavar, default in _OF_CONSUMER:
        help_ = f"{option[2:]} of the consumer; default: %(default)s"
        command.add_argument(option, metavar=metavar, help=help_, default=default)


def add_spec_options(command: argparse.ArgumentParser) -> None:
    """Add the options that describe a request, and the one that names a file in their place."""
    add_request_options(command)
    command.add_argument(
        "--spec", metavar="FILE", help="request specification, as for select; -: standard input"
    )
