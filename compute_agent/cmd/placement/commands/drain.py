"""The command drain: where what runs on some hosts would fit on the others.

The hosts are supposed to be removed, and their consumers are placed one after the other, the
largest first. What a consumer holds elsewhere, of shared storage for example, stays where it is.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from compute_agent.cmd.placement.arguments import parameters
from compute_agent.cmd.placement.client import Client, connect
from compute_agent.cmd.placement.commands.questions import ask_what_if
from compute_agent.cmd.placement.output import show_rows
from compute_agent.cmd.placement.parser import Commands
from compute_agent.cmd.progress import progress_bars
from compute_agent.manage.drain import ConsumerMove, Holder, SupposedHosts, holder_of, moves
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
    client.require_extensions("placement drain")
    roots = list(
        dict.fromkeys(client.provider(host)["root_provider_uuid"] for host in namespace.hosts)
    )
    moves = _moves(client, roots, _holders(client, roots), parameters(namespace.parameters))
    rows = [(move.consumer, move.resources, move.to or "nowhere", move.reason) for move in moves]
    headings = ("consumer", "resources", "to", "reason")
    show_rows(namespace, headings, rows, [move.as_dict() for move in moves])
    return Exit.FAILED if any(move.is_stuck for move in moves) else Exit.FINE


def _holders(client: Client, roots: Sequence[str]) -> list[Holder]:
    records: dict[str, dict[str, Any]] = {}
    for root in roots:
        tree = client.get(f"/provider_trees/{root}?include=allocations", "Reading a host")
        for consumer, record in tree["allocations"].items():
            parts = records.get(consumer, {}).get("allocations", {})
            records[consumer] = {**record, "allocations": {**parts, **record["allocations"]}}
    return [holder_of(consumer, record) for consumer, record in records.items()]


def _moves(
    client: Client,
    roots: Sequence[str],
    holders: Sequence[Holder],
    added_parameters: Sequence[tuple[str, str]],
) -> list[ConsumerMove]:
    def ask(changes: Sequence[Mapping[str, Any]], question: Mapping[str, str]) -> Any:
        [answer] = ask_what_if(client, changes, question)
        return answer

    move_entries = []
    with progress_bars() as progress:
        for move in moves(
            SupposedHosts(ask, roots),
            roots,
            holders,
            lambda root: str(client.provider(root)["name"]),
            added_parameters,
        ):
            move_entries.append(move)
            progress.update("placing consumers", len(move_entries), len(holders))
    return move_entries
