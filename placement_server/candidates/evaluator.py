"""Evaluation of queries on one state of the index, within the limits of one request."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from placement_server.candidates.capacity import Capacity, capacity
from placement_server.candidates.closest.closest import SETS
from placement_server.candidates.closest.relaxations import Trials
from placement_server.candidates.errors import SearchGaveUp
from placement_server.candidates.explain import Explanation, explain
from placement_server.candidates.fragmentation import (
    Amounts,
    ClassFragmentation,
    fragmentation,
)
from placement_server.candidates.index.index import Index
from placement_server.candidates.index.summaries import SummaryCache
from placement_server.candidates.limits import Account, Deadline, SearchEffort
from placement_server.candidates.query.filters import Microversion
from placement_server.candidates.query.query import CandidateQuery, RequestGroup
from placement_server.candidates.response import Renderer
from placement_server.candidates.search.search import Search, SearchLimits
from placement_server.candidates.what_if import SupposedTrees, Supposition

# By class, and by shape.
Fragmentation = tuple[dict[str, ClassFragmentation], list[Capacity]]


class SearchOptions(Struct, frozen=True):
    """What the configuration says of all searches.

    :param shuffle: the source of a random sample or order, None for the canonical order.
    :param max_candidates: the most candidates that are generated, -1 for no maximum.
    :param breadth_first: the order in which they are generated where there is a maximum.
    :param deadline: seconds after which a request gives up.
    """

    shuffle: random.Random | None = None
    max_candidates: int = -1
    breadth_first: bool = False
    deadline: float = 30.0


class QueryEvaluator(Struct, frozen=True):
    """Answers queries from one index.

    :param deadline: of the request that asks.
    :param account: counts what is held.
    :param effort: of the request that asks.
    """

    index: Index
    options: SearchOptions
    summaries: SummaryCache
    deadline: Deadline
    account: Account
    effort: SearchEffort

    def candidates(self, query: CandidateQuery, microversion: Microversion) -> list[bytes]:
        """Return the JSON body with the candidates."""
        index, options, account = self.index, self.options, self.account
        search = Search(
            query,
            index,
            SearchLimits(query.limit, options.max_candidates, options.breadth_first),
            one_per_tree=microversion < (1, 29),
            shuffle=options.shuffle,
            deadline=self.deadline,
            account=account,
            effort=self.effort,
        )
        renderer = Renderer(query, search.plan, index, microversion, self.summaries, account)
        return renderer.body(search.candidates())

    def capacity(self, query: CandidateQuery) -> Capacity:
        """Return how many further claims would succeed."""
        return capacity(
            Search(
                query,
                self.index,
                deadline=self.deadline,
                account=self.account,
                effort=self.effort,
            )
        )

    def fragmentation(self, shapes: Sequence[Amounts], members: RequestGroup) -> Fragmentation:
        """Return what is free of each class, and how many claims of some shapes fit."""
        counts = []
        for amounts in shapes:
            query = CandidateQuery((replace(members, resources=tuple(amounts.items())),))
            # What one count held has been dropped when the next begins.
            held_bytes = self.account.held_bytes
            counts.append(self.capacity(query))
            self.account.settle(held_bytes)
        return fragmentation(shapes, members, self.index, self.account), counts

    def explanation(
        self, query: CandidateQuery, microversion: Microversion, *, closest: bool = True
    ) -> Explanation:
        """Return why the candidates are those that they are.

        :param closest: look for sets of changes, where there is no candidate: as many as the limit.
        """
        sets = SETS if query.limit is None else query.limit
        one_per_tree = microversion < (1, 29)
        trials = Trials(self.index, self.deadline, one_per_tree, self.account, self.effort)
        return explain(query, trials, sets if closest else 0)


_Result = TypeVar("_Result")


class SupposedFleet:
    """Answers questions about a copy of an index. Used by one thread, which leaves it at the end.

    All questions share the time, the memory and the place for heavy searches of one request.

    :param trees: in which suppositions are made true.
    :param summaries: of the index that is copied.
    :param effort: begun when the request was.
    :ivar account: counts the copy, and the answers that the caller keeps.
    :raises SuppositionError: one cannot be made.
    :raises SearchGaveUp: they take too long, or too much memory.
    """

    def __init__(
        self,
        trees: SupposedTrees,
        suppositions: Sequence[Supposition],
        options: SearchOptions,
        summaries: SummaryCache,
        account: Account,
        effort: SearchEffort,
    ) -> None:
        self.account = account
        self._options = options
        self._effort = effort
        self._deadline = Deadline(options.deadline)
        trees.make_all(suppositions, self._look)
        self._index = trees.index()
        self._summaries = summaries.for_copy(self._index, trees.origin)
        self._look()

    def leave(self) -> None:
        """Give the place for heavy searches back: there are no more questions."""
        self._effort.end()

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
            limits = self._deadline, self.account, self._effort
            return ask(QueryEvaluator(self._index, self._options, self._summaries, *limits))
        except SearchGaveUp as error:
            # The frames it comes from hold what was found, for as long as the error is around.
            error.__traceback__ = None
            raise
        finally:
            self.account.settle(held_bytes)

    def _look(self) -> None:
        """Give up when it is time to; wait for a place when this is heavy."""
        self._effort.look(self._deadline.require_left())
