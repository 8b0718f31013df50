"""The command drain: where what runs on some hosts would fit on the others.

The hosts are supposed to be removed, and their consumers are placed one after the other, the
largest first. What a consumer holds elsewhere, of shared storage for example, stays where it is.
"""

from __future__ import annotations

import argparse

from compute_agent.cmd.output import show_rows
from compute_agent.cmd.placement.arguments import parameters
from compute_agent.cmd.placement.client import connect
from compute_agent.cmd.placement.parser import Commands
from compute_agent.cmd.progress import progress_bars
from compute_agent.manage import drain
from compute_agent.placement.api import PlacementApi
from compute_agent.programs.exit_status import Exit


def add_commands(commands: Commands) -> None:
    """Add the commands of this module."""
    parser = commands.add(
        "drain", _drain, "show whether the consumers of some hosts fit on other hosts"
    )
    parser.add_argument("hosts", nargs="+", metavar="HOST", help="host to drain")
    parser.add_argument(
        "--with",
        dest="parameters",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="add this to all queries, such as member_of=UUID; placement does not store requests",
    )


def _drain(namespace: argparse.Namespace) -> int:
    client = connect(namespace)
    placement = PlacementApi(client.connection)
    roots = list(
        dict.fromkeys(client.provider(host)["root_provider_uuid"] for host in namespace.hosts)
    )
    with progress_bars() as bars:
        planned_moves = list(
            drain.moves(
                placement,
                roots,
                drain.holders_of(placement, roots),
                parameters(namespace.parameters),
                progress=bars.update,
            )
        )
    rows = [
        (move.consumer, move.resources, move.to or "nowhere", move.reason) for move in planned_moves
    ]
    headings = ("consumer", "resources", "to", "reason")
    show_rows(namespace, headings, rows, [move.as_dict() for move in planned_moves])
    return Exit.FAILED if any(move.is_stuck for move in planned_moves) else Exit.FINE
