"""Questions about what could be claimed and what is used."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from compute_agent import errors
from compute_agent.placement import response_schemas
from compute_agent.placement.connection import CONSUMER_TYPE, NEWEST, Connection
from compute_agent.placement.transports.transport import Microversion, Request
from compute_agent.state.shapes import Shape

LOG = logging.getLogger(__name__)


class CandidateAnswer(NamedTuple):
    """An answer of `GET /allocation_candidates`; `version` is the one to claim with."""

    allocation_requests: list[dict[str, Any]]
    provider_summaries: dict[str, dict[str, Any]]
    version: Microversion


CLOSEST: Final[Microversion] = (1, 1)
"""The version of the extensions that explains with the closest changes."""


class Explanation(NamedTuple):
    """An answer of `GET /candidate_explanation`, as placement gave it.

    :ivar sentences: all of it, to be read.
    :ivar closest: sets of changes of the request with which it would have candidates; None where
        placement does not know the closest ones (before placement-ext 1.1).
    :ivar short: the providers that lack least of some amount; None as for `closest`.
    :ivar complete: False when placement gave up before it had all of `closest`.
    """

    trees: int
    steps: list[dict[str, Any]]
    trees_left: int
    trees_failed: list[dict[str, Any]]
    sentences: list[str]
    closest: list[dict[str, Any]] | None = None
    short: list[dict[str, Any]] | None = None
    complete: bool = True


CAPACITY: Final[Microversion] = (1, 1)
"""The version of the extensions that counts further claims."""


class Capacity(NamedTuple):
    """An answer of `GET /capacity`: how many further claims of one query would succeed.

    :ivar at_least: as many were claimed on a copy of the fleet.
    :ivar at_most: no choice of candidates makes more succeed; `exact` when both are equal.
    :ivar trees: `root`, `name`, `at_least` and `at_most` of each, the most first.
    :ivar limited_by: how many trees run out of each class first.
    """

    at_least: int
    at_most: int
    exact: bool
    trees: list[dict[str, Any]]
    limited_by: dict[str, int]


class Fragmentation(NamedTuple):
    """An answer of `GET /fragmentation`, as placement gave it.

    :ivar resource_classes: `capacity`, `used`, `free`, `largest_free` and `stranded` of
        each.
    :ivar shapes: of each shape `resources`, how many fit (`at_least`, `at_most`), how many
        would if what is free lay `together`, and the `ratio`.
    """

    resource_classes: dict[str, dict[str, int]]
    shapes: list[dict[str, Any]]


class Candidates:
    """Questions about candidates and usage over one connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def get_allocation_candidates(
        self,
        parameters: Iterable[tuple[str, str]],
        version: Microversion | None = None,
        *,
        extensions: Microversion | None = None,
    ) -> CandidateAnswer:
        """Ask for candidates.

        :param parameters: the query, unquoted, in order.
        :param version: None takes the newest both sides know.
        :param extensions: the version of the extensions that the query needs, which placement
            announced.
        :raises errors.AllocationCandidateRetrievalFailed: placement refused the question.
        """
        at = version or self._connection.newest(NEWEST)
        request = Request(
            "GET",
            "/allocation_candidates?" + urlencode(list(parameters), safe=":,!"),
            at,
            extensions=extensions,
            doing="Asking for allocation candidates",
            shape=response_schemas.CANDIDATES,
            error=errors.AllocationCandidateRetrievalFailed,
        )
        body = self._connection.call(request).json
        return CandidateAnswer(body["allocation_requests"], body["provider_summaries"], at)

    def explain(
        self,
        parameters: Iterable[tuple[str, str]],
        version: Microversion | None = None,
        *,
        most: int = 5,
    ) -> Explanation | None:
        """Ask why a query has few candidates or none; None where placement does not explain.

        :param parameters: the query, unquoted, in order; its limit does not count.
        :param version: None takes the newest both sides know.
        :param most: sets of changes to name, of those that placement finds.
        :raises errors.AllocationCandidateRetrievalFailed: placement refused the question.
        """
        if not self._connection.understands_extensions():
            return None
        extensions = CLOSEST if self._connection.understands_extensions(CLOSEST) else (1, 0)
        query = [(name, value) for name, value in parameters if name != "limit"]
        path = "/candidate_explanation?" + urlencode([*query, ("limit", str(most))], safe=":,!")
        doing = "Asking why there are few allocation candidates or none"
        body = self._get_extension(path, doing, response_schemas.EXPLANATION, version, extensions)
        return None if body is None else Explanation(**_known_fields(Explanation, body))

    def capacity(
        self, parameters: Iterable[tuple[str, str]], version: Microversion | None = None
    ) -> Capacity | None:
        """Ask how many further claims would succeed; None where placement does not count them.

        :param parameters: the query, unquoted, in order; its limit is on the trees that are listed.
        :param version: None takes the newest both sides know.
        :raises errors.AllocationCandidateRetrievalFailed: placement refused the question.
        """
        doing = "Asking how many further claims would succeed"
        body = self._get_counts("/capacity", parameters, doing, response_schemas.CAPACITY, version)
        return None if body is None else Capacity(**_known_fields(Capacity, body))

    def fragmentation(
        self, shapes: Iterable[Mapping[str, int]], member_of: Iterable[str] = ()
    ) -> Fragmentation | None:
        """Ask what is free and of what use it is; None where placement does not report it.

        :param shapes: amounts by class, as a claim would ask for them.
        :param member_of: filters on aggregates, as of candidates.
        :raises errors.AllocationCandidateRetrievalFailed: placement refused the question.
        """
        query = [
            ("resources", ",".join(f"{name}:{amount}" for name, amount in shape.items()))
            for shape in shapes
        ]
        query += [("member_of", value) for value in member_of]
        doing = "Asking what is free and of what use it is"
        body = self._get_counts("/fragmentation", query, doing, response_schemas.FRAGMENTATION)
        return None if body is None else Fragmentation(**_known_fields(Fragmentation, body))

    def _get_counts(
        self,
        path: str,
        parameters: Iterable[tuple[str, str]],
        doing: str,
        shape: Shape,
        version: Microversion | None = None,
    ) -> dict[str, Any] | None:
        if not self._connection.understands_extensions(CAPACITY):
            return None
        path = f"{path}?{urlencode(list(parameters), safe=':,!')}"
        return self._get_extension(path, doing, shape, version, CAPACITY)

    def _get_extension(
        self,
        path: str,
        doing: str,
        shape: Shape,
        version: Microversion | None,
        extensions: Microversion,
    ) -> dict[str, Any] | None:
        request = Request(
            "GET",
            path,
            version or self._connection.newest(NEWEST),
            extensions=extensions,
            doing=doing,
            shape=shape,
            error=errors.AllocationCandidateRetrievalFailed,
        )
        try:
            body: dict[str, Any] = self._connection.call(request).json
        except errors.PlacementTooOld as error:
            LOG.info("Placement no longer offers this extension. %s", error)
            return None
        return body

    def get_usages(
        self, project: str, user: str | None = None
    ) -> dict[str, dict[str, int]] | dict[str, int]:
        """Usage of a project (and user): by consumer type where placement knows types (1.38).

        :returns: from 1.38 type -> `consumer_count` and amount per class; else amount per class.
        :raises errors.UsageRetrievalFailed: it could not be read.
        """
        query = [("project_id", project), *([("user_id", user)] if user else [])]
        version = self._connection.newest(CONSUMER_TYPE)
        is_typed = version >= CONSUMER_TYPE
        request = Request(
            "GET",
            f"/usages?{urlencode(query)}",
            version,
            doing=f"Reading the usage of project {project}",
            shape=response_schemas.TYPED_USAGES if is_typed else response_schemas.USAGES,
            error=errors.UsageRetrievalFailed,
        )
        usages: dict[str, Any] = self._connection.call(request).json["usages"]
        return usages


def _known_fields(answer: type[NamedTuple], body: Mapping[str, Any]) -> dict[str, Any]:
    """Return what this version knows of an answer; a newer placement may say more."""
    return {name: body[name] for name in answer._fields if name in body}
