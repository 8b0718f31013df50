"""A fleet of which something is supposed, and the answers of one request about it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from placement_server.candidates.capacity.capacity import Capacity
from placement_server.candidates.errors import OutOfTime, SearchGaveUp
from placement_server.candidates.evaluator import QueryEvaluator, SearchOptions
from placement_server.candidates.explain import Explanation
from placement_server.candidates.index.index import Index
from placement_server.candidates.index.summaries import SummaryCache
from placement_server.candidates.limits.heavy import SearchEffort
from placement_server.candidates.limits.memory import Account
from placement_server.candidates.query.filters import Microversion
from placement_server.candidates.query.query import CandidateQuery
from placement_server.candidates.what_if.supposed_trees import SupposedTrees
from placement_server.candidates.what_if.suppositions import Supposition

_Result = TypeVar("_Result")


class SupposedFleet:
    """Answers questions about a copy of an index. Used by one thread, which leaves it at the end.

    All questions share the time, the memory and the place for heavy searches of one request.

    :param effort: begun when the request was.
    :ivar account: counts the copy, and the answers that the caller keeps.
    """

    def __init__(
        self, index: Index, options: SearchOptions, account: Account, effort: SearchEffort
    ) -> None:
        self.account = account
        self._index = index
        self._options = options
        self._effort = effort
        self._summaries = SummaryCache()
        self._ends_at = time.monotonic() + options.deadline

    def leave(self) -> None:
        """Give the place for heavy searches back: there are no more questions."""
        self._effort.end()

    def suppose(
        self, trees: SupposedTrees, suppositions: Sequence[Supposition], summaries: SummaryCache
    ) -> None:
        """Make suppositions true.

        :param summaries: of the index that is copied.
        :raises SuppositionError: one cannot be made.
        :raises SearchGaveUp: they take too long, or too much memory.
        """
        trees.make_all(suppositions, self._look)
        origin, self._index = self._index, trees.index()
        self._summaries = summaries.for_copy(self._index, origin)
        self._look()

    def candidates(self, query: CandidateQuery, microversion: Microversion) -> list[bytes]:
        """Return the JSON body with the candidates."""
        return self._answer(lambda evaluator: evaluator.candidates(query, microversion))

    def explain(self, query: CandidateQuery, microversion: Microversion) -> Explanation:
        """Return why the candidates are those that they are, and the closest relaxations.

        No provider is reported as short: the database knows who holds something, but not what is
        supposed of it.
        """
        return self._answer(lambda evaluator: evaluator.explanation(query, microversion))

    def capacity(self, query: CandidateQuery, microversion: Microversion) -> Capacity:
        """Return how many further claims would succeed; all versions that nest count alike."""
        del microversion
        return self._answer(lambda evaluator: evaluator.capacity(query))

    def _answer(self, ask: Callable[[QueryEvaluator], _Result]) -> _Result:
        """Answer a question; afterwards no more is counted than before."""
        held_bytes = self.account.held_bytes
        try:
            return ask(
                QueryEvaluator(
                    self._index,
                    self._options,
                    self._summaries,
                    self._seconds_left(),
                    self.account,
                    self._effort,
                )
            )
        except SearchGaveUp as error:
            # The frames it comes from hold what was found, for as long as the error is around.
            error.__traceback__ = None
            raise
        finally:
            self.account.settle(held_bytes)

    def _look(self) -> None:
        """Give up when it is time to; wait for a place when this is heavy."""
        seconds = self._seconds_left()
        if not seconds:
            raise OutOfTime(self._options.deadline, 0)
        self._effort.look(seconds)

    def _seconds_left(self) -> float:
        return max(0.0, self._ends_at - time.monotonic())
