"""Queries for candidates of one search, with the causes that their answers give."""

from __future__ import annotations

from dataclasses import replace

from compute_agent.placement.transports.transport import Microversion
from compute_agent.scheduler import candidates as answers
from compute_agent.scheduler.candidates import AllocationCandidates
from compute_agent.scheduler.causes import QueryCause
from compute_agent.scheduler.errors import UnknownName
from compute_agent.scheduler.placement_client import PlacementClient
from compute_agent.scheduler.search.layout_queries import LayoutQuery


class CandidateQueries:
    """The queries of one search, and what became of them."""

    def __init__(self, placement: PlacementClient) -> None:
        self._placement = placement
        self.causes: list[QueryCause] = []
        self.notes: list[str] = []
        self.microversion: Microversion = (0, 0)

    def ask(self, shape: LayoutQuery) -> AllocationCandidates:
        request = shape.request
        is_extended = request.gains_by_extensions and self._placement.understands_extensions()
        query = request.query(is_extended=is_extended)
        try:
            body, self.microversion = self._placement.allocation_candidates(
                request.parameters(is_extended=is_extended),
                request.microversion,
                is_extended=is_extended,
            )
        except UnknownName as error:
            self._note(shape, query, returned_count=0)
            if str(error) not in self.notes:
                self.notes.append(str(error))
            return AllocationCandidates()
        answer = answers.read(body, shape.name)
        self._note(shape, query, returned_count=answer.returned_count)
        kept_candidates = tuple(
            candidate for candidate in answer.candidates if shape.keep(candidate, answer)
        )
        return replace(answer, candidates=kept_candidates)

    def _note(self, shape: LayoutQuery, query: str, *, returned_count: int) -> None:
        limit = shape.request.limit
        version = ".".join(map(str, self.microversion))
        is_limit_reached = limit is not None and returned_count >= limit
        self.causes.append(QueryCause(shape.name, query, version, returned_count, is_limit_reached))
