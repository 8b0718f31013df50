"""The command drain: where what runs on some hosts would fit on the others.

The hosts are supposed to be removed, and their consumers are placed one after the other, the
largest first. What a consumer holds elsewhere, of shared storage for example, stays where it is.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlencode

from compute_agent.cmd.placement.arguments import parameters
from compute_agent.cmd.placement.client import Client, connect
from compute_agent.cmd.placement.commands.questions import ask_what_if
from compute_agent.cmd.placement.exit_status import Exit
from compute_agent.cmd.placement.output import show_rows
from compute_agent.cmd.placement.parser import Commands
from compute_agent.cmd.progress import progress_bars
from compute_agent.provider_tree.trait_names import MISC_SHARES_VIA_AGGREGATE

Held = Mapping[str, Mapping[str, int]]
"""Amounts by provider and class."""


@dataclass(frozen=True, slots=True)
class Move:
    """A consumer of a host to be drained.

    :ivar to: the name of the host that would take it; None where none would.
    :ivar reason: what stood in the way, where none would.
    """

    consumer: str
    resources: Mapping[str, int]
    to: str | None
    reason: str = ""


def add_commands(commands: Commands) -> None:
    """Add the commands of this module."""
    parser = commands.add("drain", _drain, "show whether what runs on some hosts fits elsewhere")
    parser.add_argument("hosts", nargs="+", metavar="HOST")
    parser.add_argument(
        "--with",
        dest="parameters",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="for all queries, such as member_of=UUID: placement does not keep what was asked for",
    )


def _drain(namespace: argparse.Namespace) -> int:
    client = connect(namespace)
    client.require_extensions("placement drain")
    roots = list(
        dict.fromkeys(client.provider(host)["root_provider_uuid"] for host in namespace.hosts)
    )
    held: dict[str, dict[str, dict[str, int]]] = {}
    for root in roots:
        tree = client.get(f"/provider_trees/{root}?include=allocations", "Reading a host")
        for consumer, entry in tree["allocations"].items():
            held.setdefault(consumer, {}).update(
                {provider: part["resources"] for provider, part in entry["allocations"].items()}
            )
    moves = _moves(client, roots, held, parameters(namespace.parameters))
    rows = [(move.consumer, move.resources, move.to or "nowhere", move.reason) for move in moves]
    headings = ("consumer", "resources", "to", "reason")
    show_rows(namespace, headings, rows, [asdict(move) for move in moves])
    return Exit.DONE if all(move.to for move in moves) else Exit.NOTHING


def _moves(
    client: Client,
    roots: Sequence[str],
    held: Mapping[str, Held],
    added: Sequence[tuple[str, str]],
) -> list[Move]:
    changes: list[dict[str, Any]] = [{"remove_tree": root} for root in roots]
    names: dict[str, str] = {}
    moves = []
    ordered = sorted(held, key=lambda consumer: (_size(held[consumer]), consumer), reverse=True)
    with progress_bars() as progress:
        for number, consumer in enumerate(ordered):
            progress.update("placing consumers", number, len(ordered))
            query = urlencode([*query_for(held[consumer], roots), *added])
            [answer] = ask_what_if(client, changes, {"candidates": f"{query}&limit=1"})
            resources = _sums(held[consumer])
            if not answer["allocation_requests"]:
                [explained] = ask_what_if(client, changes, {"explanation": query})
                moves.append(Move(consumer, resources, None, explained["sentences"][0]))
                continue
            [request] = answer["allocation_requests"]
            changes.append({"claim": request})
            root = _host_of([answer["provider_summaries"][uuid] for uuid in request["allocations"]])
            if root not in names:
                names[root] = client.provider(root)["name"]
            moves.append(Move(consumer, resources, names[root]))
    return moves


def _host_of(summaries: Sequence[Mapping[str, Any]]) -> str:
    """Return the root of what is claimed, other than what hosts share, if there is any."""
    own = [entry for entry in summaries if MISC_SHARES_VIA_AGGREGATE not in entry["traits"]]
    return str((own or summaries)[0]["root_provider_uuid"])


def query_for(held: Held, roots: Sequence[str]) -> list[tuple[str, str]]:
    """Return the parameters of a query for as much, in as many parts.

    What is held of roots is one group, which may be spread; what is held of a provider below them
    is a group of its own.
    """
    query: list[tuple[str, str]] = []
    at_roots = _sums({provider: held[provider] for provider in held if provider in roots})
    if at_roots:
        query.append(("resources", _text(at_roots)))
    nested = [provider for provider in held if provider not in roots]
    for number, provider in enumerate(nested, 1):
        query.append((f"resources_{number}", _text(held[provider])))
    if len(nested) > 1:
        query.append(("group_policy", "none"))
    return query


def _text(resources: Mapping[str, int]) -> str:
    return ",".join(f"{name}:{amount}" for name, amount in sorted(resources.items()))


def _sums(held: Held) -> dict[str, int]:
    sums: dict[str, int] = {}
    for resources in held.values():
        for name, amount in resources.items():
            sums[name] = sums.get(name, 0) + amount
    return sums


def _size(held: Held) -> tuple[int, ...]:
    """Return what consumers are ordered by: those that are hard to place are the largest."""
    sums = _sums(held)
    return len(held), sums.get("MEMORY_MB", 0), sums.get("VCPU", 0), sum(sums.values())
