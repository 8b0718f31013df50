"""Questions about what could be claimed and what is used."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, Final
from urllib.parse import urlencode

from compute_agent import errors
from compute_agent.placement import response_schemas
from compute_agent.placement.connection import CONSUMER_TYPE, NEWEST, Connection
from compute_agent.placement.transports.transport import Microversion


@dataclass(frozen=True, slots=True)
class CandidateAnswer:
    """An answer of ``GET /allocation_candidates``; ``version`` is the one to claim with."""

    allocation_requests: list[dict[str, Any]]
    provider_summaries: dict[str, dict[str, Any]]
    version: Microversion


CLOSEST: Final[Microversion] = (1, 1)
"""The version of the extensions that explains with the closest changes."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """An answer of ``GET /candidate_explanation``, as placement gave it.

    :ivar sentences: all of it, to be read.
    :ivar closest: sets of changes of the request with which it would have candidates; None where
        placement does not know the closest ones (before placement-ext 1.1).
    :ivar short: the providers that lack least of some amount; None as for ``closest``.
    :ivar complete: False when placement gave up before it had all of ``closest``.
    """

    trees: int
    steps: list[dict[str, Any]]
    trees_left: int
    trees_failed: list[dict[str, Any]]
    sentences: list[str]
    closest: list[dict[str, Any]] | None = None
    short: list[dict[str, Any]] | None = None
    complete: bool = True


class Candidates:
    """Questions about candidates and usage over one connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def get_allocation_candidates(
        self,
        parameters: Iterable[tuple[str, str]],
        version: Microversion | None = None,
        *,
        extensions: str | None = None,
    ) -> CandidateAnswer:
        """Ask for candidates.

        :param parameters: the query, unquoted, in order.
        :param version: None takes the newest both sides know.
        :param extensions: the version of the extensions that the query needs, which placement
            announced.
        :raises errors.AllocationCandidateRetrievalFailed: placement refused the question.
        """
        at = version or self._connection.newest(NEWEST)
        doing = "Asking for allocation candidates"
        path = "/allocation_candidates?" + urlencode(list(parameters), safe=":,!")
        kind = errors.AllocationCandidateRetrievalFailed
        shape = response_schemas.CANDIDATES
        body = self._connection.get(path, doing, shape, kind, version=at, extensions=extensions)
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
        extensions = "1.1" if self._connection.understands_extensions(CLOSEST) else "1.0"
        asked = [(name, value) for name, value in parameters if name != "limit"]
        path = "/candidate_explanation?" + urlencode([*asked, ("limit", str(most))], safe=":,!")
        body = self._connection.get(
            path,
            "Asking why there are few allocation candidates or none",
            response_schemas.EXPLANATION,
            errors.AllocationCandidateRetrievalFailed,
            version=version or self._connection.newest(NEWEST),
            extensions=extensions,
        )
        known = (field.name for field in fields(Explanation))
        return Explanation(**{name: body[name] for name in known if name in body})

    def get_usages(
        self, project: str, user: str | None = None
    ) -> dict[str, dict[str, int]] | dict[str, int]:
        """Usage of a project (and user): by consumer type where placement knows types (1.38).

        :returns: from 1.38 type -> ``consumer_count`` and amount per class; else amount per class.
        :raises errors.UsageRetrievalFailed: it could not be read.
        """
        asked = [("project_id", project), *([("user_id", user)] if user else [])]
        doing, path = f"Reading the usage of project {project}", f"/usages?{urlencode(asked)}"
        kind = errors.UsageRetrievalFailed
        version = self._connection.newest(CONSUMER_TYPE)
        typed = version >= CONSUMER_TYPE
        shape = response_schemas.TYPED_USAGES if typed else response_schemas.USAGES
        body = self._connection.get(path, doing, shape, kind, version=version)
        usages: dict[str, Any] = body["usages"]
        return usages
