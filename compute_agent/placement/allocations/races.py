"""Races that placement loses inside while it writes allocations, and repeating what lost one."""

from __future__ import annotations

from collections.abc import Callable

from compute_agent import errors
from compute_agent.placement import responses
from compute_agent.placement.connection import Connection
from compute_agent.placement.transports.transport import Response


class _LostRace(errors.ResourceProviderUpdateConflict):
    """Placement lost a race of its own; the very same request may succeed."""

    def __init__(self, response: Response, doing: str) -> None:
        super().__init__(f"{doing}: placement lost a race", status=response.status)
        self.response = response


def repeating_races(
    connection: Connection, attempt: Callable[[], Response], doing: str
) -> Response:
    """Return the answer to a write of allocations, repeated while placement loses races inside.

    A change of the consumer by another client is not such a race and is answered at once; so is
    the last of the races where all were lost.

    :param attempt: sends the request.
    :param doing: what it is for, as the beginning of a sentence.
    """

    def once() -> Response:
        response = attempt()
        if responses.is_conflict(response) and not responses.is_consumer_conflict(response):
            raise _LostRace(response, doing)
        return response

    try:
        return connection.retries.while_conflicting(once)
    except _LostRace as exc:
        return exc.response
