"""Consumers of hosts to be drained, and the hosts that would take them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from compute_agent import errors
from compute_agent.drift.orphans import MIGRATION
from compute_agent.placement import response_schemas, responses
from compute_agent.placement.allocations.allocations import UNTYPED
from compute_agent.placement.allocations.amounts import Amounts
from compute_agent.placement.connection import Connection
from compute_agent.placement.provider_trees import SINCE, Part, WholeTree
from compute_agent.placement.transports.transport import Request
from compute_agent.provider_tree.trait_names import (
    COMPUTE_STATUS_DISABLED,
    MISC_SHARES_VIA_AGGREGATE,
)

if TYPE_CHECKING:
    from compute_agent.placement.api import PlacementApi

Parameters = Iterable[tuple[str, str]]

_ROOT_REQUIRED_SINCE: Final = (1, 35)
_ASKED_AT_ONCE: Final = 1000
_ANSWERS: Final = {
    "candidates": response_schemas.CANDIDATES,
    "explanation": response_schemas.EXPLANATION,
}
_MOVE_UNDER_WAY: Final = "the source of a move, which holds it until the move is ended"


@dataclass(frozen=True, slots=True)
class Holder:
    """A consumer of a host that is drained, and what it holds there.

    :ivar type: None where it has none, or placement does not know types.
    """

    consumer: str
    type: str | None
    held_amounts: Amounts

    @property
    def moves(self) -> bool:
        """Whether it has to be moved; what an unfinished move holds ends with the move."""
        return self.type != MIGRATION


@dataclass(frozen=True, slots=True)
class HostHolders:
    """Who holds something of a host, at one moment.

    :ivar is_disabled: whether placement shows it as disabled.
    """

    is_disabled: bool
    holders: tuple[Holder, ...]


@dataclass(frozen=True, slots=True)
class ConsumerMove:
    """A consumer of a host to be drained.

    :ivar to: the name of the host that would take it; None where none would.
    :ivar reason: why there is none.
    """

    consumer: str
    type: str | None
    resources: Mapping[str, int]
    to: str | None
    reason: str = ""

    @property
    def is_stuck(self) -> bool:
        """Whether it has to move, and fits nowhere."""
        return self.to is None and self.reason != _MOVE_UNDER_WAY

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "consumer": self.consumer,
            "type": self.type,
            "resources": dict(self.resources),
            "to": self.to,
            "reason": self.reason,
        }


class SupposedHosts:
    """The hosts that are left, as placement-server supposes them: each takes what it is given.

    :param gone_roots: roots of hosts that take nothing.
    """

    def __init__(self, connection: Connection, gone_roots: Iterable[str]) -> None:
        self._ask = partial(what_if, connection)
        self._changes: list[Mapping[str, Any]] = [{"remove_tree": root} for root in gone_roots]

    def place(self, query: Sequence[tuple[str, str]]) -> tuple[str | None, str]:
        """Return the root that takes what is asked for, and give it that; else None and why."""
        text = urlencode(query)
        answer = self._ask(self._changes, {"candidates": f"{text}&limit=1"})
        if not answer["allocation_requests"]:
            explanation = self._ask(self._changes, {"explanation": text})
            return None, str(explanation["sentences"][0])
        [request] = answer["allocation_requests"]
        self._changes.append({"claim": request})
        return _host_of(answer["provider_summaries"], request), ""


class PlacementHosts:
    """The hosts that are left, where placement answers only what fits now.

    Each consumer is asked about as if it were the only one.
    """

    def __init__(self, placement: PlacementApi, gone_roots: Collection[str]) -> None:
        self._placement = placement
        self._gone_roots = frozenset(gone_roots)

    def place(self, query: Sequence[tuple[str, str]]) -> tuple[str | None, str]:
        """Return a root with room for what is asked for, else None and why."""
        version = self._placement.connection.newest()
        parameters = [
            parameter
            for parameter in query
            if version >= _ROOT_REQUIRED_SINCE or parameter[0] != "root_required"
        ]
        answer = self._placement.candidates.get_allocation_candidates(
            [*parameters, ("limit", str(_ASKED_AT_ONCE))]
        )
        for request in answer.allocation_requests:
            root = _host_of(answer.provider_summaries, request)
            if root not in self._gone_roots:
                return root, ""
        return None, "no other host has room for it"


def what_if(
    connection: Connection, changes: Sequence[Mapping[str, Any]], question: Mapping[str, str]
) -> Any:
    """Return placement's answer to one question about the fleet with changes supposed to be made.

    :raises errors.PlacementError: it cannot be asked, or refuses the question.
    """
    request = Request(
        "POST",
        "/what_if",
        connection.newest(),
        {"changes": list(changes), "questions": [question]},
        extensions=SINCE,
        doing="Asking what would be",
        shape=response_schemas.WHAT_IF,
        # nothing is written
        repeat=True,
    )
    response = connection.call(request)
    answers = response.json["answers"]
    [kind_of_question] = question
    if len(answers) == 1 and answers[0].get("errors"):
        raise errors.InvalidInput(f"A question was refused: {answers[0]['errors'][0]['detail']}")
    if len(answers) != 1 or _ANSWERS[kind_of_question].misfit(answers[0]) is not None:
        raise responses.malformed(request, response, _ANSWERS[kind_of_question].words)
    return answers[0]


def holders_of(placement: PlacementApi, roots: Iterable[str]) -> list[Holder]:
    """Return who holds something of some hosts, each with what it holds of all of them.

    :raises errors.PlacementError: placement cannot be read.
    """
    holders: dict[str, Holder] = {}
    for root in roots:
        use = use_of(placement, root)
        for holder in () if use is None else use.holders:
            known = holders.get(holder.consumer)
            amounts = {**known.held_amounts, **holder.held_amounts} if known else None
            holders[holder.consumer] = replace(holder, held_amounts=amounts) if amounts else holder
    return list(holders.values())


def use_of(placement: PlacementApi, root: str) -> HostHolders | None:
    """Return who holds something of a host, and whether it is disabled; None where it is gone.

    :raises errors.PlacementError: placement cannot be read.
    """
    if placement.trees.is_offered:
        try:
            tree = placement.trees.read(root, include=[Part.ALLOCATIONS])
        except errors.PlacementTooOld:
            return _use_one_by_one(placement, root)
        if not isinstance(tree, WholeTree):
            return None
        [traits] = [entry["traits"] for entry in tree.providers if entry["uuid"] == root]
        members = {entry["uuid"] for entry in tree.providers}
        holders = [holder_of(*entry, members) for entry in sorted(tree.allocations.items())]
        return HostHolders(COMPUTE_STATUS_DISABLED in traits, tuple(holders))
    return _use_one_by_one(placement, root)


def _use_one_by_one(placement: PlacementApi, root: str) -> HostHolders | None:
    names = {provider["uuid"]: provider["name"] for provider in placement.providers.in_tree(root)}
    if root not in names:
        return None
    consumers = {
        consumer
        for uuid, name in names.items()
        for consumer in placement.providers.allocations(uuid, name)
    }
    holders = []
    for consumer in sorted(consumers):
        record, nature = placement.allocations.read_consumer(consumer)
        holders.append(holder_of(consumer, {**record, "consumer_type": nature.type}, names))
    traits = placement.providers.traits(root, names[root]).content
    # what was released between two requests is held no more
    return HostHolders(
        COMPUTE_STATUS_DISABLED in traits, tuple(h for h in holders if h.held_amounts)
    )


def holder_of(
    consumer: str, record: Mapping[str, Any], providers: Collection[str] | None = None
) -> Holder:
    """Return a consumer with what it holds of some providers, of all by default."""
    held_amounts = {
        provider: part["resources"]
        for provider, part in record["allocations"].items()
        if providers is None or provider in providers
    }
    kind = record.get("consumer_type")
    return Holder(consumer, None if kind == UNTYPED else kind, held_amounts)


def moves(
    placement: PlacementApi,
    roots: Collection[str],
    holders: Collection[Holder],
    added_parameters: Parameters = (),
    *,
    left_out: Iterable[str] = (),
    progress: Callable[[str, int, int], None],
) -> Iterator[ConsumerMove]:
    """Iterate over the moves of some consumers, the largest first, each placed before the next.

    :param roots: of the hosts that are drained.
    :param added_parameters: parameters of every query.
    :param left_out: roots of other hosts that take nothing.
    """
    unusable_hosts = [*roots, *left_out]
    fleet = (
        SupposedHosts(placement.connection, unusable_hosts)
        if placement.trees.is_offered
        else PlacementHosts(placement, unusable_hosts)
    )
    names: dict[str, str] = {}
    largest_first = sorted(
        holders, key=lambda holder: (_size(holder.held_amounts), holder.consumer), reverse=True
    )
    for count, holder in enumerate(largest_first, 1):
        root, reason = (
            fleet.place(_enabled_only([*query_for(holder.held_amounts, roots), *added_parameters]))
            if holder.moves
            else (None, _MOVE_UNDER_WAY)
        )
        if root is not None and root not in names:
            provider = placement.providers.get(root)
            names[root] = root if provider is None else str(provider["name"])
        to = None if root is None else names[root]
        progress("placing consumers", count, len(largest_first))
        yield ConsumerMove(holder.consumer, holder.type, _sums(holder.held_amounts), to, reason)


def query_for(holding: Amounts, roots: Collection[str]) -> list[tuple[str, str]]:
    """Return the parameters of a query for as much, in as many parts.

    What is held of roots is one group, which may be spread; what is held of a provider below them
    is a group of its own.
    """
    query: list[tuple[str, str]] = []
    at_roots = _sums({provider: holding[provider] for provider in holding if provider in roots})
    if at_roots:
        query.append(("resources", _text(at_roots)))
    nested_providers = [provider for provider in holding if provider not in roots]
    for number, provider in enumerate(nested_providers, 1):
        query.append((f"resources_{number}", _text(holding[provider])))
    if len(nested_providers) > 1:
        query.append(("group_policy", "none"))
    return query


def _enabled_only(query: Parameters) -> list[tuple[str, str]]:
    """Return a query that keeps off disabled hosts; the parameter may be given only once."""
    others, traits = [], [f"!{COMPUTE_STATUS_DISABLED}"]
    for name, value in query:
        if name == "root_required":
            traits.append(value)
        else:
            others.append((name, value))
    return [*others, ("root_required", ",".join(traits))]


def _host_of(summaries: Mapping[str, Mapping[str, Any]], request: Mapping[str, Any]) -> str:
    """Return the root of what is claimed, other than what hosts share, if there is any."""
    claimed_providers = [(uuid, summaries[uuid]) for uuid in request["allocations"]]
    own = [
        entry for entry in claimed_providers if MISC_SHARES_VIA_AGGREGATE not in entry[1]["traits"]
    ]
    uuid, summary = (own or claimed_providers)[0]
    # a placement before 1.29 has no nested providers
    return str(summary.get("root_provider_uuid", uuid))


def _text(resources: Mapping[str, int]) -> str:
    return ",".join(f"{name}:{amount}" for name, amount in sorted(resources.items()))


def _sums(holding: Amounts) -> dict[str, int]:
    sums: dict[str, int] = {}
    for resources in holding.values():
        for name, amount in resources.items():
            sums[name] = sums.get(name, 0) + amount
    return sums


def _size(holding: Amounts) -> tuple[int, ...]:
    """Return what consumers are ordered by: those that are hard to place are the largest."""
    sums = _sums(holding)
    return len(holding), sums.get("MEMORY_MB", 0), sums.get("VCPU", 0), sum(sums.values())
