"""Commands about where something fits, and how much more: candidates, claim, explain, capacity."""

from __future__ import annotations

import argparse
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote, urlencode

from compute_agent.cmd.output import print_json, show_rows
from compute_agent.cmd.placement.arguments import (
    MEMBER_OF,
    BadInput,
    provider_amounts,
    query_amounts,
)
from compute_agent.cmd.placement.client import Client, NamedThingMissing, RequestRefused
from compute_agent.cmd.placement.parser import Commands
from compute_agent.manage import drain
from compute_agent.placement.api import PlacementApi
from compute_agent.placement.connection import NEWEST
from compute_agent.programs.arguments import Container
from compute_agent.programs.exit_status import Exit
from compute_agent.programs.whole_numbers import whole_number
from compute_agent.provider_tree.trait_names import COMPUTE_STATUS_DISABLED

_SHORT: Final = ("name", "group", "resource_class", "asked", "free", "capacity", "held_by")
_UNITS: Final = ("min_unit", "max_unit", "step_size")
"""Fields of an inventory that may forbid an amount although it is free."""

_QUERY: Final = (
    """
    parameters NAME=VALUE *  parameter of the query, such as resources_GPU=VGPU:1 or
                             group_policy=none
    --resources CLASS=N,...  amounts of the group without suffix
    --required TRAIT,... *   with these traits; !TRAIT: without it
    --in-tree PROVIDER       only in the tree of this provider
    """,
    MEMBER_OF,
)
"""The arguments of a request for candidates."""
_DISABLED: Final = "--disabled  count disabled hosts, too, which schedulers give nothing to"


def add_commands(commands: Commands) -> None:
    """Add the commands of this module."""
    commands.add(
        "candidates",
        _candidates,
        "list ways to satisfy a request",
        *_QUERY,
        "--limit N (10)  at most N candidates",
    )
    commands.add(
        "claim",
        _claim,
        "claim the first candidate that fits, for a new consumer",
        *_QUERY,
        """
        --consumer UUID         uuid of the consumer; default: a new one
        --project ID !          project of the consumer
        --user ID !             user of the consumer
        --type TYPE (INSTANCE)  type of the consumer
        --limit N (10)          try at most N candidates
        """,
    )
    commands.add("explain", _explain, "show why a request has few candidates or none", *_QUERY)
    commands.add(
        "capacity",
        _capacity,
        "count how many more requests would fit",
        *_QUERY,
        """
        --in-each UUID *  count separately in this aggregate, for example a zone (repeatable)
        --trees           count separately in each tree
        """,
        _DISABLED,
    )
    commands.add(
        "fragmentation",
        _fragmentation,
        "show how much is free, and how much of that cannot be used",
        "shapes CLASS=N,... +  amounts of an expected request",
        MEMBER_OF,
    )
    commands.add(
        "what-if",
        _what_if,
        "count how many more requests would fit after some changes",
        *_QUERY,
        _DISABLED,
        _add_suppositions,
    )


def _add_suppositions(parser: Container) -> None:
    group = parser.add_argument_group("changes, made in the order given")
    for option, metavar, help_ in (
        ("--add-like", "HOST[=N]", "add N hosts like this one; default: 1"),
        ("--remove", "HOST", "remove this host and its allocations"),
        ("--release", "UUID", "release what this consumer holds"),
        ("--set-inventory", "PROVIDER:CLASS=N", "set the total of this inventory"),
        ("--set-traits", "PROVIDER:TRAIT,...", "replace the traits of this provider"),
    ):
        group.add_argument(
            option, action=_SuppositionOption, dest="changes", metavar=metavar, help=help_
        )


def query_of(namespace: argparse.Namespace, client: Client) -> list[tuple[str, str]]:
    """Return the parameters of the query that the arguments ask for."""
    pairs = list(namespace.parameters)
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
    return pairs


def _candidates(namespace: argparse.Namespace, client: Client) -> int:
    document = _ask(namespace, client)
    show_candidates(namespace, document)
    return Exit.FINE if document["allocation_requests"] else Exit.FAILED


def _ask(namespace: argparse.Namespace, client: Client) -> Mapping[str, Any]:
    query = [*query_of(namespace, client), ("limit", namespace.limit)]
    path = f"/allocation_candidates?{urlencode(query)}"
    return dict(client.get(path, "Asking for candidates"))


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


def _claim(namespace: argparse.Namespace, client: Client) -> None:
    consumer = namespace.consumer or str(uuid.uuid4())
    requests = _ask(namespace, client)["allocation_requests"]
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


def _explain(namespace: argparse.Namespace, client: Client) -> int:
    client.require_extensions("placement explain")
    path = f"/candidate_explanation?{urlencode(query_of(namespace, client))}"
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


_COUNTS: Final = ("at_least", "at_most", "exact", "limited_by")


def _counted_query(namespace: argparse.Namespace, client: Client) -> str:
    """Return the query that the arguments ask for, without disabled hosts unless they count."""
    pairs = query_of(namespace, client)
    if namespace.disabled or any(
        COMPUTE_STATUS_DISABLED in value for name, value in pairs if name == "root_required"
    ):
        return urlencode(pairs)
    return urlencode(drain.enabled_only(pairs))


class _SuppositionOption(argparse.Action):
    """Keeps the changes in the order of the command line."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        del parser
        changes = [*(getattr(namespace, self.dest) or []), (option_string, values)]
        setattr(namespace, self.dest, changes)


def ask_what_if(
    client: Client, changes: Sequence[Mapping[str, Any]], *questions: Mapping[str, str]
) -> list[Any]:
    """Return the answers to questions about the fleet with changes supposed to be made."""
    body = {"changes": list(changes), "questions": list(questions)}
    answers: list[Any] = client.ask("POST", "/what_if", "Asking what would be", body)["answers"]
    for answer in answers:
        if "errors" in answer:
            raise BadInput(f"A question was refused: {answer['errors'][0]['detail']}")
    return answers


def _capacity(namespace: argparse.Namespace, client: Client) -> int:
    client.require_extensions("placement capacity")
    query = _counted_query(namespace, client)
    zones: list[str | None] = [*namespace.in_each] or [None]
    counts = {zone: _count(client, query, zone) for zone in zones}
    if namespace.trees:
        trees = [{**tree, "in": zone} for zone, count in counts.items() for tree in count["trees"]]
        columns = ("root", "name", "at_least", "at_most")
        show_rows(namespace, columns, [[tree[name] for name in columns] for tree in trees], trees)
    else:
        everywhere = "all" if namespace.format == "table" else None
        rows = [[zone or everywhere, *_counts(namespace, count)] for zone, count in counts.items()]
        show_rows(namespace, ("in", *_COUNTS), rows, [{"in": z, **c} for z, c in counts.items()])
    return Exit.FINE if any(count["at_least"] for count in counts.values()) else Exit.FAILED


def _counts(namespace: argparse.Namespace, count: Mapping[str, Any]) -> list[Any]:
    *amounts, limits = (count[name] for name in _COUNTS)
    if namespace.format == "table":
        limits = ", ".join(f"{name} ({trees} tree(s))" for name, trees in sorted(limits.items()))
    return [*amounts, limits]


def _count(client: Client, query: str, zone: str | None) -> dict[str, Any]:
    member = f"&member_of={quote(zone)}" if zone else ""
    return dict(client.get(f"/capacity?{query}{member}", "Counting what fits"))


def _fragmentation(namespace: argparse.Namespace, client: Client) -> None:
    client.require_extensions("placement fragmentation")
    query = [("resources", query_amounts(shape)) for shape in namespace.shapes]
    query += [("member_of", value) for value in namespace.member_of]
    report = client.get(f"/fragmentation?{urlencode(query)}", "Asking what is free")
    if namespace.format == "json":
        print_json(report)
        return
    columns = ("capacity", "used", "free", "largest_free", "stranded")
    rows = [
        (name, *(entry[column] for column in columns))
        for name, entry in sorted(report["resource_classes"].items())
    ]
    show_rows(namespace, ("resource_class", *columns), rows, report)
    if not namespace.column:
        print()
        fits = ("resources", "at_least", "at_most", "together", "ratio")
        rows = [tuple(entry[name] for name in fits) for entry in report["shapes"]]
        show_rows(namespace, fits, rows, report)


def _what_if(namespace: argparse.Namespace, client: Client) -> None:
    client.require_extensions("placement what-if")
    changes = [_change(client, *change) for change in namespace.changes or ()]
    question = {"capacity": f"{_counted_query(namespace, client)}&limit=1"}
    [now] = ask_what_if(client, [], question)
    [then] = ask_what_if(client, changes, question)
    rows = [(when, *_counts(namespace, count)) for when, count in (("now", now), ("then", then))]
    show_rows(namespace, ("", *_COUNTS), rows, {"now": now, "then": then})


def _change(client: Client, option: str, value: str) -> dict[str, Any]:
    """Return a change as the API takes it."""
    if option == "--release":
        return {"release": value}
    if option == "--remove":
        return {"remove_tree": client.provider(value)["root_provider_uuid"]}
    if option == "--add-like":
        name, _, copies = value.partition("=")
        like = client.provider(name)["root_provider_uuid"]
        number = whole_number(copies or "1")
        if number is None:
            raise BadInput(f"{option} {value!r}: {copies!r} is not a number of copies.")
        return {"add_tree": {"like": like, "copies": number}}
    if option == "--set-traits":
        name, separator, rest = value.rpartition(":")
        if not separator:
            raise BadInput(f"{option} {value!r} does not name a provider: expected PROVIDER:...")
        traits = [trait for trait in rest.split(",") if trait]
        return {"set_traits": {"provider": client.provider(name)["uuid"], "traits": traits}}
    name, totals = provider_amounts(value)
    if len(totals) > 1:
        raise BadInput(f"{option} {value!r} names several classes: repeat the option for each.")
    [(resource_class, total)] = totals.items()
    provider = client.provider(name)
    record = client.part(provider, "inventories")["inventories"].get(resource_class, {})
    new_record = {**record, "total": total, "resource_class": resource_class}
    return {"set_inventory": {"provider": provider["uuid"], **new_record}}
