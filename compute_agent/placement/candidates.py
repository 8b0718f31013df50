"""Questions about what could be claimed and what is used."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
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
