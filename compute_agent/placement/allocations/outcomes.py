"""Outcomes of writes of allocations: what was lacking, and races that placement lost inside."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from compute_agent import errors
from compute_agent.placement import responses
from compute_agent.placement.connection import Connection
from compute_agent.placement.transports.transport import Request, Response

_NO_CAPACITY: Final = re.compile(
    r"(?:allocation for|Inventory for) '(?P<rc>[^']+)' on resource provider '(?P<rp>[^']+)'"
)


class NoCapacity(NamedTuple):
    """There is not enough (any more), though there may be on other providers.

    Provider and class are empty where placement did not name them.
    """

    provider: str = ""
    resource_class: str = ""
    detail: str = ""


class _LostRace(errors.ResourceProviderUpdateConflict):
    """Placement lost a race of its own; the very same request may succeed."""

    def __init__(self, request: Request, response: Response) -> None:
        super().__init__(f"{request.doing}: placement lost a race", status=response.status)
        self.response = response


def repeating_races(connection: Connection, request: Request) -> Response:
    """Return the answer to a write of allocations, repeated while placement loses races inside.

    A change of the consumer by another client is not such a race and is answered at once; so is
    the last of the races where all were lost.
    """

    def attempt() -> Response:
        response = connection.call(request)
        if responses.is_conflict(response) and not responses.is_consumer_conflict(response):
            raise _LostRace(request, response)
        return response

    try:
        return connection.retries.while_conflicting(attempt)
    except _LostRace as exc:
        return exc.response


def _no_capacity(response: Response) -> NoCapacity:
    """Read provider and class from a 409 that is not a conflict."""
    detail = responses.explanation(response)
    match = _NO_CAPACITY.search(detail)
    return NoCapacity(match["rp"] if match else "", match["rc"] if match else "", detail)


def shortage_in(
    kind: type[errors.PlacementError], request: Request, response: Response
) -> NoCapacity | None:
    """Return what a write was refused for want of, None if it was carried out."""
    if response.status == 204:
        return None
    conflict = responses.is_conflict(response) or responses.is_consumer_conflict(response)
    if response.status == 409 and not conflict:
        return _no_capacity(response)
    raise responses.failure(kind, request, response)
