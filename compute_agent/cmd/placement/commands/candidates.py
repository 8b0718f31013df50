"""Commands about where something fits: candidates, explain."""

from __future__ import annotations

import argparse
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode

from compute_agent.cmd.output import show_rows
from compute_agent.cmd.placement.arguments import (
    BadInput,
    Commands,
    add_member_of,
    parameters,
    query_amounts,
)
from compute_agent.cmd.placement.client import Client, NamedThingMissing, RequestRefused, connect
from compute_agent.placement.api import PlacementApi
from compute_agent.placement.connection import NEWEST
from compute_agent.programs.exit_status import Exit
from compute_agent.programs.whole_numbers import positive

_SHORT: Final = ("name", "group", "resource_class", "asked", "free", "capacity", "held_by")
_UNITS: Final = ("min_unit", "max_unit", "step_size")
"""Fields of an inventory that may forbid an amount although it is free."""


def add_commands(commands: Commands) -> None:
    """Add the commands of this module."""
    listing = commands.add("candidates", _candidates, "list ways to satisfy a request")
    add_query(listing)
    listing.add_argument(
        "--limit", type=positive, default=10, metavar="N", help="at most N candidates; default: 10"
    )
    claim = commands.add("claim", _claim, "claim the first candidate that fits, for a new consumer")
    add_query(claim)
    claim.add_argument(
        "--consumer", metavar="UUID", help="uuid of the consumer; default: a new one"
    )
    claim.add_argument("--project", metavar="ID", required=True, help="project of the consumer")
    claim.add_argument("--user", metavar="ID", required=True, help="user of the consumer")
    claim.add_argument(
        "--type", metavar="TYPE", default="INSTANCE", help="type of the consumer; default: INSTANCE"
    )
    claim.add_argument(
        "--limit",
        type=positive,
        default=10,
        metavar="N",
        help="try at most N candidates; default: 10",
    )
    explain = commands.add("explain", _explain, "show why a request has few candidates or none")
    add_query(explain)


def add_query(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of a request for candidates."""
    parser.add_argument(
        "parameters",
        nargs="*",
        metavar="NAME=VALUE",
        help="parameter of the query, such as resources_GPU=VGPU:1 or group_policy=none",
    )
    parser.add_argument(
        "--resources", metavar="CLASS=N,...", help="amounts of the group without suffix"
    )
    parser.add_argument(
        "--required",
        action="append",
        default=[],
        metavar="TRAIT,...",
        help="with these traits; !TRAIT: without it",
    )
    add_member_of(parser)
    parser.add_argument("--in-tree", metavar="PROVIDER", help="only in the tree of this provider")


def query_of(namespace: argparse.Namespace, client: Client) -> str:
    """Return the query string that the arguments ask for."""
    pairs = parameters(namespace.parameters)
    if namespace.resources:
        pairs.append(("resources", query_amounts(namespace.resources)))
    pairs += [("required", value) for value in namespace.required]
    pairs += [("member_of", value) for value in namespace.member_of]
    if namespace.in_tree:
        pairs.append(("in_tree", client.provider(namespace.in_tree)["uuid"]))
    if not any(name.startswith("resources") for name, _ in pairs):
        raise BadInput(
            "The request asks for nothing: expected --resources CLASS=N,..., or a parameter such "
            "as resources_GPU=VGPU:1."
        )
    return urlencode(pairs)


def _candidates(namespace: argparse.Namespace) -> int:
    client = connect(namespace)
    query = query_of(namespace, client)
    path = f"/allocation_candidates?{query}&limit={namespace.limit}"
    document = client.get(path, "Asking for candidates")
    show_candidates(namespace, document)
    return Exit.FINE if document["allocation_requests"] else Exit.FAILED


def show_candidates(namespace: argparse.Namespace, document: Mapping[str, Any]) -> None:
    """Print candidates: a line for each provider of each."""
    summaries = document["provider_summaries"]
    rows = []
    for number, request in enumerate(document["allocation_requests"], 1):
        for provider, entry in request["allocations"].items():
            groups = [
                suffix or "(unsuffixed)"
                for suffix, providers in request.get("mappings", {}).items()
                if provider in providers
            ]
            free = {
                name: summaries[provider]["resources"][name]["capacity"]
                - summaries[provider]["resources"][name]["used"]
                for name in entry["resources"]
            }
            rows.append((number, provider, entry["resources"], free, groups))
    show_rows(namespace, ("#", "provider", "resources", "free", "groups"), rows, document)


def _claim(namespace: argparse.Namespace) -> None:
    client = connect(namespace)
    consumer = namespace.consumer or str(uuid.uuid4())
    path = f"/allocation_candidates?{query_of(namespace, client)}&limit={namespace.limit}"
    requests = client.get(path, "Asking for candidates")["allocation_requests"]
    if not requests:
        raise NamedThingMissing("There is no candidate; placement explain shows why.")
    claimed_allocations = _claim_first(namespace, client, consumer, requests)
    rows = [
        (consumer, provider, entry["resources"]) for provider, entry in claimed_allocations.items()
    ]
    document = {"consumer": consumer, "allocations": claimed_allocations}
    show_rows(namespace, ("consumer", "provider", "resources"), rows, document)


def _claim_first(
    namespace: argparse.Namespace,
    client: Client,
    consumer: str,
    requests: Sequence[Mapping[str, Any]],
) -> Mapping[str, Any]:
    """Claim one candidate after the other until one holds; return its allocations."""
    version = client.connection.newest(NEWEST)
    detail = ""
    for request in requests:
        shortage = PlacementApi(client.connection).allocations.claim_resources(
            consumer,
            request,
            namespace.project,
            namespace.user,
            version,
            consumer_type=namespace.type,
        )
        if shortage is None:
            allocations: Mapping[str, Any] = request["allocations"]
            return allocations
        detail = shortage.detail
    raise RequestRefused(
        f"None of the {len(requests)} candidates can be claimed any more, because others claimed "
        f"at the same time; of the last, placement answered: {detail} Repeat the command."
    )


def _explain(namespace: argparse.Namespace) -> int:
    client = connect(namespace)
    client.require_extensions("placement explain")
    path = f"/candidate_explanation?{query_of(namespace, client)}"
    explanation = client.get(path, "Asking why there are so few candidates")
    show_explanation(namespace, explanation)
    failed_count = sum(entry["trees"] for entry in explanation["trees_failed"])
    return Exit.FINE if explanation["trees_left"] > failed_count else Exit.FAILED


def show_explanation(namespace: argparse.Namespace, explanation: Mapping[str, Any]) -> None:
    """Print an explanation: its sentences and the closest providers, or all of it as JSON."""
    rows = [(sentence,) for sentence in explanation["sentences"]]
    if namespace.format != "table" or namespace.column:
        show_rows(namespace, ("explanation",), rows, explanation)
        return
    for sentence in explanation["sentences"]:
        print(sentence)
    if explanation["short"]:
        print()
        short = [
            [*(entry[column] for column in _SHORT), {u: entry[u] for u in _UNITS if u in entry}]
            for entry in explanation["short"]
        ]
        show_rows(namespace, (*_SHORT, "forbidden_by"), short, explanation)
