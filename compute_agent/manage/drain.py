"""Consumers of hosts to be drained, and the hosts that would take them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from msgspec import Struct

from compute_agent import errors
from compute_agent.placement.allocations.allocations import MIGRATION, UNTYPED
from compute_agent.placement.allocations.amounts import Amounts, by_class
from compute_agent.placement.candidate_answers import (
    AllocationRequest,
    Explanation,
    Summary,
    traits_of,
)
from compute_agent.placement.candidates import Candidates, after_moves
from compute_agent.placement.provider_trees import Part, WholeTree
from compute_agent.provider_tree.trait_names import (
    COMPUTE_STATUS_DISABLED,
    MISC_SHARES_VIA_AGGREGATE,
)

if TYPE_CHECKING:
    from compute_agent.placement.api import PlacementApi

Parameters = Iterable[tuple[str, str]]

_Queries = Mapping[str, Sequence[tuple[str, str]]]
"""What each consumer needs elsewhere."""
_Place = tuple[str | None, str]
"""The name of a host, else None and why there is none."""

_ROOT_REQUIRED_SINCE: Final = (1, 35)
_ASKED_AT_ONCE: Final = 1000
_ASKED_TOGETHER: Final = 100
_PLANNING_SECONDS: Final = 20
_MOVE_UNDER_WAY: Final = "the source of a move, which holds it until the move is ended"


class Holder(Struct, frozen=True):
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


class HostHolders(Struct, frozen=True):
    """Who holds something of a host, at one moment.

    :ivar is_disabled: whether placement shows it as disabled.
    """

    is_disabled: bool
    holders: tuple[Holder, ...]


class ConsumerMove(Struct, frozen=True):
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
        holders = [_holder(*entry, members) for entry in sorted(tree.allocations.items())]
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
        holders.append(_holder(consumer, {**record, "consumer_type": nature.type}, names))
    traits = placement.providers.traits(root, names[root]).content
    # what was released between two requests is held no more
    return HostHolders(
        COMPUTE_STATUS_DISABLED in traits, tuple(h for h in holders if h.held_amounts)
    )


def _holder(consumer: str, record: Mapping[str, Any], providers: Collection[str]) -> Holder:
    held_amounts = {
        provider: part["resources"]
        for provider, part in record["allocations"].items()
        if provider in providers
    }
    kind = record.get("consumer_type")
    return Holder(consumer, None if kind == UNTYPED else kind, held_amounts)


def moves(
    placement: PlacementApi,
    root: str,
    holders: Collection[Holder],
    added_parameters: Parameters = (),
    *,
    left_out: Iterable[str] = (),
    progress: Callable[[str, int, int], None],
) -> Iterator[ConsumerMove]:
    """Iterate over the moves of some consumers, the largest first.

    :param root: of the host that is drained.
    :param added_parameters: parameters of every query.
    :param left_out: roots of other hosts that take nothing.
    """
    queries = {
        holder.consumer: enabled_only([*_query_for(holder.held_amounts, root), *added_parameters])
        for holder in holders
        if holder.moves
    }
    if placement.trees.is_offered:
        places = _placed_together(placement, root, [*left_out], queries)
    else:
        places = _placed_alone(placement, [root, *left_out], queries)
    largest_first = sorted(
        holders, key=lambda holder: (_size(holder.held_amounts), holder.consumer), reverse=True
    )
    for count, holder in enumerate(largest_first, 1):
        to, reason = places.get(holder.consumer, (None, _MOVE_UNDER_WAY))
        progress("placing consumers", count, len(largest_first))
        yield ConsumerMove(
            holder.consumer, holder.type, by_class(holder.held_amounts.values()), to, reason
        )


def _placed_together(
    placement: PlacementApi, root: str, left_out: Sequence[str], queries: _Queries
) -> dict[str, _Place]:
    """Return where each consumer goes by a plan of placement-server for all of them."""
    if not queries:
        return {}
    question = {
        "empty": [root],
        "max_moves": 0,
        "requests": {consumer: urlencode(query) for consumer, query in queries.items()},
        "leave_alone": {"trees": left_out},
        "time_limit": _PLANNING_SECONDS,
    }
    plans = Candidates(placement.connection).make_room(question)["plans"]
    planned_moves = plans[0]["moves"] if plans else []
    places: dict[str, _Place] = {
        move["consumer"]: (move["to"]["name"] or move["to"]["root"], "") for move in planned_moves
    }
    stuck = [consumer for consumer in queries if consumer not in places]
    changes = after_moves(planned_moves, [root, *left_out])

    @cache
    def host_name(uuid: str) -> str:
        provider = placement.providers.get(uuid)
        return uuid if provider is None else str(provider["name"])

    for first in range(0, len(stuck), _ASKED_TOGETHER):
        consumers = stuck[first : first + _ASKED_TOGETHER]
        texts = [urlencode(queries[consumer]) for consumer in consumers]
        explanations = Candidates(placement.connection).explanations_if(changes, texts)
        for consumer, explanation in zip(consumers, explanations, strict=True):
            places[consumer] = None, _why_not(explanation, host_name)
    return places


def _why_not(explanation: Explanation, host_name: Callable[[str], str]) -> str:
    """Return the first sentence, with the name of the host that it has as an example."""
    sentence = explanation["sentences"][0]
    for root in {entry["example"] for entry in explanation["closest"]}:
        if root in sentence:
            sentence = sentence.replace(root, host_name(root))
    return sentence


def _placed_alone(
    placement: PlacementApi, gone_roots: Collection[str], queries: _Queries
) -> dict[str, _Place]:
    """Return where each consumer would go if it were the only one, by the plain API.

    :param gone_roots: roots of hosts that take nothing.
    """
    has_root_required = placement.connection.newest() >= _ROOT_REQUIRED_SINCE
    places: dict[str, _Place] = {}
    for consumer, query in queries.items():
        parameters = [part for part in query if has_root_required or part[0] != "root_required"]
        answer, _ = Candidates(placement.connection).get_allocation_candidates(
            [*parameters, ("limit", str(_ASKED_AT_ONCE))]
        )
        found_roots = (
            _host_of(answer.provider_summaries, request) for request in answer.allocation_requests
        )
        root = next((root for root in found_roots if root not in gone_roots), None)
        provider = None if root is None else placement.providers.get(root)
        name = root if provider is None else str(provider["name"])
        places[consumer] = name, "" if root else "no other host has room for it"
    return places


def _query_for(holding: Amounts, root: str) -> list[tuple[str, str]]:
    """Return the parameters of a query for as much, in as many parts.

    What is held of the root is one group, which may be spread; what is held of a provider below it
    is a group of its own.
    """
    query: list[tuple[str, str]] = []
    if root in holding:
        query.append(("resources", _text(holding[root])))
    nested_providers = [provider for provider in holding if provider != root]
    for number, provider in enumerate(nested_providers, 1):
        query.append((f"resources_{number}", _text(holding[provider])))
    if len(nested_providers) > 1:
        query.append(("group_policy", "none"))
    return query


def enabled_only(query: Parameters) -> list[tuple[str, str]]:
    """Return a query that keeps off disabled hosts; the parameter may be given only once."""
    others, traits = [], [f"!{COMPUTE_STATUS_DISABLED}"]
    for name, value in query:
        if name == "root_required":
            traits.append(value)
        else:
            others.append((name, value))
    return [*others, ("root_required", ",".join(traits))]


def _host_of(summaries: Mapping[str, Summary], request: AllocationRequest) -> str:
    """Return the root of what is claimed, other than what hosts share, if there is any."""
    claimed_providers = [summaries[uuid] for uuid in request.allocations]
    own = [
        summary
        for summary in claimed_providers
        if MISC_SHARES_VIA_AGGREGATE not in traits_of(summary)
    ]
    return (own or claimed_providers)[0].root_provider_uuid


def _text(resources: Mapping[str, int]) -> str:
    return ",".join(f"{name}:{amount}" for name, amount in sorted(resources.items()))


def _size(holding: Amounts) -> tuple[int, ...]:
    """Return what consumers are ordered by: those that are hard to place are the largest."""
    sums = by_class(holding.values())
    return len(holding), sums.get("MEMORY_MB", 0), sums.get("VCPU", 0), sum(sums.values())
