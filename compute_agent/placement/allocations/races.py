"""Races that placement loses inside while it writes allocations, and repeating what lost one."""

from __future__ import annotations

from compute_agent import errors
from compute_agent.placement import responses
from compute_agent.placement.connection import Connection
from compute_agent.placement.transports.transport import Request, Response


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
