"""Claims with alternatives: the first of several candidates that fits, in one request.

An extension of this project's server, from placement-ext 1.1 on.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from compute_agent import errors
from compute_agent.placement import response_schemas, responses
from compute_agent.placement.allocations.allocations import Allocations, AlreadyClaimed, NoCapacity
from compute_agent.placement.allocations.amounts import as_request, of_record
from compute_agent.placement.allocations.races import repeating_races
from compute_agent.placement.connection import NEWEST, Connection
from compute_agent.placement.transports.transport import Microversion, Request

LOG = logging.getLogger(__name__)

SINCE: Final[Microversion] = (1, 1)
"""The version of the extensions that brought them."""

NO_CANDIDATE_LEFT: Final = "placement.no_candidate_left"


class LostAlternative(NamedTuple):
    """A candidate that could not be claimed.

    :ivar position: its place among the candidates.
    :ivar resource_class: the class of which ``provider`` has too little, or which it has no
        inventory of; empty where the provider itself is gone.
    """

    position: int
    provider: str
    resource_class: str
    detail: str


class AlternativeAnswer(NamedTuple):
    """The answer to a claim: the position of what is claimed now, if any, and what was lost."""

    position: int | None
    lost_alternatives: tuple[LostAlternative, ...]


class Alternatives:
    """Claims for consumers that hold nothing yet, over one connection."""

    def __init__(self, connection: Connection, allocations: Allocations) -> None:
        self._connection = connection
        self._allocations = allocations

    @property
    def available(self) -> bool:
        """Whether placement announces such claims."""
        return self._connection.understands_extensions(SINCE)

    def claim_first(
        self,
        consumer: str,
        allocation_requests: Sequence[Mapping[str, Any]],
        project: str,
        user: str,
        consumer_type: str,
    ) -> AlternativeAnswer | AlreadyClaimed:
        """Give a consumer that must hold nothing yet the first of these that fits.

        A consumer that holds exactly one of them is our own earlier claim whose answer was lost.
        Where placement turns out to take no alternatives any more, as after a return to an older
        version, only the first is tried.

        :param allocation_requests: 1 to 1,000, as ``GET /allocation_candidates`` gave them.
        :raises errors.AllocationUpdateFailed: the request was refused, and nothing is claimed.
        """
        body = {
            "consumer_uuid": consumer,
            "project_id": project,
            "user_id": user,
            "consumer_type": consumer_type,
            "consumer_generation": None,
            "candidates": [_candidate(request) for request in allocation_requests],
        }
        try:
            answer = self._once(consumer, body)
            if answer is None:
                # the consumer was there and is gone again: now it is new
                answer = self._once(consumer, body, last=True)
        except errors.PlacementTooOld as error:
            LOG.info("Placement no longer takes alternatives; the first one is claimed. %s", error)
            answer = self._only_the_first(consumer, body)
        assert answer is not None, "the last attempt answers or raises"
        return answer

    def _only_the_first(
        self, consumer: str, body: Mapping[str, Any]
    ) -> AlternativeAnswer | AlreadyClaimed:
        answer = self._allocations.claim_resources(
            consumer,
            body["candidates"][0],
            body["project_id"],
            body["user_id"],
            self._connection.newest(NEWEST),
            consumer_type=body["consumer_type"],
        )
        if isinstance(answer, AlreadyClaimed):
            # an earlier try whose answer was lost may have claimed any of them
            return _own_or_foreign(consumer, answer.record, body)
        if isinstance(answer, NoCapacity):
            provider, resource_class = answer.provider or "", answer.resource_class or ""
            lost_alternative = LostAlternative(0, provider, resource_class, answer.detail)
            return AlternativeAnswer(None, (lost_alternative,))
        return AlternativeAnswer(0, ())

    def _once(
        self, consumer: str, body: Mapping[str, Any], *, last: bool = False
    ) -> AlternativeAnswer | AlreadyClaimed | None:
        request = Request(
            "POST",
            "/claims",
            self._connection.newest(NEWEST),
            body,
            extensions=SINCE,
            doing=f"Claiming one of {len(body['candidates'])} candidates for consumer {consumer}",
            # the generation makes that it happens once, however often it is sent
            repeat=True,
        )
        response = repeating_races(self._connection, request)
        number = len(body["candidates"])
        if response.status == 200:
            answer = responses.body_of(request, response, response_schemas.claim_of(number))
            return AlternativeAnswer(answer["chosen"], _lost_alternatives(answer["lost"]))
        if responses.code_of(response) == NO_CANDIDATE_LEFT:
            refusal = responses.body_of(
                request, response, response_schemas.no_candidate_left(number)
            )
            return AlternativeAnswer(None, _lost_alternatives(refusal["errors"][0]["lost"]))
        if responses.is_consumer_conflict(response):
            current_record = self._allocations.get_allocs_for_consumer(consumer)
            if current_record["allocations"]:
                return _own_or_foreign(consumer, current_record, body)
            if not last:
                return None
        raise responses.failure(errors.AllocationUpdateFailed, request, response)


def _own_or_foreign(
    consumer: str, record: dict[str, Any], body: Mapping[str, Any]
) -> AlternativeAnswer | AlreadyClaimed:
    held_amounts = of_record(record)
    for position, candidate in enumerate(body["candidates"]):
        if of_record(candidate) == held_amounts:
            return AlternativeAnswer(position, ())
    return AlreadyClaimed(consumer, record)


def _candidate(allocation_request: Mapping[str, Any]) -> dict[str, Any]:
    candidate: dict[str, Any] = {"allocations": as_request(of_record(allocation_request))}
    if allocation_request.get("mappings"):
        candidate["mappings"] = allocation_request["mappings"]
    return candidate


def _lost_alternatives(entries: Sequence[Mapping[str, Any]]) -> tuple[LostAlternative, ...]:
    return tuple(
        LostAlternative(
            entry["candidate"],
            entry["provider"],
            entry.get("resource_class", ""),
            entry.get("reason") or f"{entry['asked']} asked, {entry['free']} free",
        )
        for entry in entries
    )
