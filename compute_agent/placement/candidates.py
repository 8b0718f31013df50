"""Questions about what could be claimed and what is used."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import urlencode

from msgspec.structs import replace

from compute_agent import errors
from compute_agent.placement import responses
from compute_agent.placement.answers import Usages
from compute_agent.placement.candidate_answers import (
    CandidateList,
    Explanation,
    PlannedMove,
    Room,
    SupposedAnswers,
)
from compute_agent.placement.connection import CONSUMER_TYPE, NEWEST, Connection
from compute_agent.placement.transports.transport import EXTENSIONS_VERSION, Microversion, Request
from compute_agent.programs.decoding import Amounts, Whole

LOG = logging.getLogger(__name__)

T = TypeVar("T")


def after_moves(
    moves: Sequence[PlannedMove], gone_roots: Iterable[str] = ()
) -> list[Mapping[str, Any]]:
    """Return the changes to suppose for the fleet after the moves of a plan.

    :param gone_roots: of hosts that are supposed to be gone.
    """
    return [
        *({"release": move["consumer"]} for move in moves),
        *({"remove_tree": root} for root in gone_roots),
        *({"claim": {"allocations": move["allocations"]}} for move in moves),
    ]


class Candidates:
    """Questions about candidates and usage over one connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def get_allocation_candidates(
        self,
        parameters: Iterable[tuple[str, str]],
        version: Microversion | None = None,
        *,
        is_extended: bool = False,
    ) -> tuple[CandidateList, Microversion]:
        """Return the candidates for a query, and the microversion to claim one of them with.

        :param parameters: the query, unquoted, in order.
        :param version: None takes the newest both sides know.
        :param is_extended: the query needs the extensions, which placement announced.
        :raises errors.AllocationCandidateRetrievalFailed: placement refused the question.
        """
        at = version or self._connection.newest(NEWEST)
        request = Request(
            "GET",
            "/allocation_candidates?" + urlencode(list(parameters), safe=":,!"),
            at,
            extensions=EXTENSIONS_VERSION if is_extended else None,
            doing="Asking for allocation candidates",
            error=errors.AllocationCandidateRetrievalFailed,
        )
        return self._connection.read(request, CandidateList), at

    def explain(self, parameters: Iterable[tuple[str, str]]) -> Explanation | None:
        """Ask why a query has few candidates or none; None where placement does not explain.

        :param parameters: the query, unquoted, in order; its limit does not count.
        :raises errors.AllocationCandidateRetrievalFailed: placement refused the question.
        """
        if not self._connection.understands_extensions():
            return None
        query = [(name, value) for name, value in parameters if name != "limit"]
        path = "/candidate_explanation?" + urlencode([*query, ("limit", "5")], safe=":,!")
        request = Request(
            "GET",
            path,
            self._connection.newest(NEWEST),
            extensions=EXTENSIONS_VERSION,
            good=(200,),
            doing="Asking why there are few allocation candidates or none",
            error=errors.AllocationCandidateRetrievalFailed,
        )
        try:
            response = self._connection.call(request)
        except errors.PlacementTooOld as error:
            LOG.info("Placement no longer offers this extension. %s", error)
            return None
        return responses.whole_body_of(request, response, Explanation)

    def candidates_if(self, changes: Sequence[Mapping[str, Any]], query: str) -> CandidateList:
        """Return the candidates for a query with changes supposed to be made.

        :raises errors.AllocationCandidateRetrievalFailed: placement refused the question.
        """
        questions = [{"candidates": query}]
        return self._answers_if(changes, questions, SupposedAnswers[CandidateList])[0]

    def explanations_if(
        self, changes: Sequence[Mapping[str, Any]], queries: Sequence[str]
    ) -> list[Explanation]:
        """Return the explanations of queries with changes supposed to be made.

        :raises errors.AllocationCandidateRetrievalFailed: placement refused a question.
        """
        questions = [{"explanation": query} for query in queries]
        return self._answers_if(changes, questions, SupposedAnswers[Explanation])

    def make_room(self, question: Mapping[str, Any]) -> Room:
        """Return placement's plans of moves after which something fits, or trees are empty.

        :param question: the body of the request.
        :raises errors.InvalidInput: the question, or a query in it, is wrong in itself.
        :raises errors.AllocationCandidateRetrievalFailed: placement refused the question.
        """
        request = self._supposed("/make_room", question)
        # beside its search, placement may have to wait for others and to read all allocations
        seconds = 60.0 + float(question.get("time_limit", 0))
        request = replace(request, good=(200, 400), timeout=(10.0, seconds))
        response = self._connection.call(request)
        if response.status == 400:
            raise errors.InvalidInput(f"A question was refused: {responses.explanation(response)}")
        return responses.whole_body_of(request, response, Room)

    def _answers_if(
        self,
        changes: Sequence[Mapping[str, Any]],
        questions: Sequence[Mapping[str, str]],
        kind: type[SupposedAnswers[T]],
    ) -> list[T]:
        request = self._supposed("/what_if", {"changes": list(changes), "questions": questions})
        response = self._connection.call(replace(request, good=(200,)))
        answers = responses.body_of(request, response, kind).answers
        if len(answers) != len(questions):
            raise responses.malformed(request, response, f"{len(questions)} answer(s)")
        return answers

    def _supposed(self, path: str, body: object) -> Request:
        """Return a request that changes nothing, though it is a POST."""
        return Request(
            "POST",
            path,
            self._connection.newest(NEWEST),
            body,
            extensions=EXTENSIONS_VERSION,
            doing="Asking what would be",
            error=errors.AllocationCandidateRetrievalFailed,
            repeat=True,
        )

    def get_usages(
        self, project: str, user: str | None = None
    ) -> dict[str, dict[str, int]] | dict[str, int]:
        """Usage of a project (and user): by consumer type where placement knows types (1.38).

        :returns: from 1.38 type -> `consumer_count` and amount per class; else amount per class.
        :raises errors.UsageRetrievalFailed: it could not be read.
        """
        query = [("project_id", project), *([("user_id", user)] if user else [])]
        version = self._connection.newest(CONSUMER_TYPE)
        request = Request(
            "GET",
            f"/usages?{urlencode(query)}",
            version,
            doing=f"Reading the usage of project {project}",
            error=errors.UsageRetrievalFailed,
        )
        if version >= CONSUMER_TYPE:
            return self._connection.read(request, Usages[Amounts]).usages
        return self._connection.read(request, Usages[Whole]).usages
