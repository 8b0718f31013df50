"""Allocation candidates as the HTTP API asks for them."""

import random

from placement_server.candidates.explain import Explanation, explain
from placement_server.candidates.feed import Feed
from placement_server.candidates.filters import Microversion
from placement_server.candidates.providers import ProviderFilters, matching_ids
from placement_server.candidates.query import CandidateQuery
from placement_server.candidates.response import Renderer
from placement_server.candidates.search import Limits, Search
from placement_server.candidates.summaries import SummaryCache
from placement_server.store.store import Store

# From about here on the store is faster alone than with a list of ids.
FEW_PROVIDERS = 100


class CandidateService:
    """Answers queries from an index that it keeps equal to a store. Thread safe.

    :param randomize: a random sample under a limit, a random order without one.
    :param max_candidates: the most candidates that are generated, -1 for no maximum.
    :param strategy: the order in which they are generated where there is a maximum.
    :param deadline: seconds after which a search gives up.
    :param feed: a feed of the store, made anew when absent.
    """

    def __init__(
        self,
        store: Store,
        *,
        randomize: bool = False,
        max_candidates: int = -1,
        strategy: str = "depth-first",
        deadline: float = 30.0,
        feed: Feed | None = None,
    ) -> None:
        self.feed = feed or Feed(store)
        self._random = random.SystemRandom() if randomize else None
        self._max_candidates = max_candidates
        self._breadth_first = strategy == "breadth-first"
        self._deadline = deadline
        self._summaries = SummaryCache()

    def answer(self, query: CandidateQuery, microversion: Microversion) -> bytes:
        """Return the JSON body for a query.

        :raises placement_server.candidates.errors.QueryError: a class or trait does not exist.
        :raises placement_server.candidates.errors.SearchGaveUp: out of time, or too many found.
        :raises placement_server.store.errors.StoreError: the database cannot be read.
        """
        index = self.feed.index()
        limits = Limits(query.limit, self._max_candidates, self._breadth_first, self._deadline)
        search = Search(
            query,
            index,
            limits,
            one_per_tree=microversion < (1, 29),
            shuffle=self._random,
        )
        renderer = Renderer(query, search.plan, index, microversion, self._summaries)
        return renderer.body(search.candidates())

    def provider_ids(self, filters: ProviderFilters) -> list[int] | None:
        """Return the ids of the few providers that pass filters, as of this moment or later.

        None when the store finds them as fast: there are many, and most of the work is to show
        them; or a name is not known here; or this process has no index yet, which takes longer
        to load than the store takes to answer.

        :raises placement_server.store.errors.StoreError: the database cannot be read.
        """
        if not self.feed.loaded or not filters:
            return None
        ids = matching_ids(filters, self.feed.index())
        return ids if ids is not None and len(ids) <= FEW_PROVIDERS else None

    def explain(self, query: CandidateQuery, microversion: Microversion) -> Explanation:
        """Tell why a query has the candidates that it has; raises what :meth:`answer` does."""
        return explain(
            query,
            self.feed.index(),
            one_per_tree=microversion < (1, 29),
            seconds=self._deadline,
        )
