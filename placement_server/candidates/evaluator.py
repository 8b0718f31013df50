"""Evaluation of queries on one state of the index, within the limits of one request."""

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from placement_server.candidates.capacity.capacity import Capacity, capacity
from placement_server.candidates.capacity.fragmentation import (
    Amounts,
    ClassFragmentation,
    fragmentation,
)
from placement_server.candidates.closest.closest import SETS
from placement_server.candidates.closest.trials import Trials
from placement_server.candidates.explain import Explanation, explain
from placement_server.candidates.index.index import Index
from placement_server.candidates.index.summaries import SummaryCache
from placement_server.candidates.limits.heavy import SearchEffort
from placement_server.candidates.limits.memory import Account
from placement_server.candidates.query.filters import Microversion
from placement_server.candidates.query.query import CandidateQuery, RequestGroup
from placement_server.candidates.response import Renderer
from placement_server.candidates.search.search import Search, SearchLimits

# By class, and by shape.
Fragmentation = tuple[dict[str, ClassFragmentation], list[Capacity]]


@dataclass(frozen=True, slots=True)
class SearchOptions:
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


@dataclass(frozen=True, slots=True)
class QueryEvaluator:
    """Answers queries from one index.

    :param seconds: how long each may take.
    :param account: counts what is held.
    :param effort: of the request that asks.
    """

    index: Index
    options: SearchOptions
    summaries: SummaryCache
    seconds: float
    account: Account
    effort: SearchEffort

    def candidates(self, query: CandidateQuery, microversion: Microversion) -> list[bytes]:
        """Return the JSON body with the candidates."""
        options = self.options
        search = Search(
            query,
            self.index,
            SearchLimits(query.limit, options.max_candidates, options.breadth_first, self.seconds),
            one_per_tree=microversion < (1, 29),
            shuffle=options.shuffle,
            account=self.account,
            effort=self.effort,
        )
        renderer = Renderer(
            query, search.plan, self.index, microversion, self.summaries, self.account
        )
        return renderer.body(search.candidates())

    def capacity(self, query: CandidateQuery) -> Capacity:
        """Return how many further claims would succeed."""
        limits = SearchLimits(seconds=self.seconds)
        return capacity(Search(query, self.index, limits, account=self.account, effort=self.effort))

    def fragmentation(self, shapes: Sequence[Amounts], members: RequestGroup) -> Fragmentation:
        """Return what is free of each class, and how many claims of some shapes fit."""
        ends_at = time.monotonic() + self.seconds
        counts = []
        for amounts in shapes:
            query = CandidateQuery((replace(members, resources=tuple(amounts.items())),))
            # What one count held has been dropped when the next begins.
            held_bytes = self.account.held_bytes
            counts.append(replace(self, seconds=ends_at - time.monotonic()).capacity(query))
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
        trials = Trials(self.index, self.seconds, one_per_tree, self.account, self.effort)
        return explain(query, trials, sets if closest else 0)
