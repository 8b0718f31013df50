"""Allocation candidates as the HTTP API asks for them."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from placement_server.candidates.bounds.heavy import Effort, HeavySearches
from placement_server.candidates.bounds.memory import Account, SearchMemory
from placement_server.candidates.errors import SearchGaveUp
from placement_server.candidates.explain import Explanation, explain
from placement_server.candidates.index.feed import Feed
from placement_server.candidates.index.index import Index
from placement_server.candidates.index.provider_filter import ProviderFilters, matching_ids
from placement_server.candidates.index.summaries import SummaryCache
from placement_server.candidates.query.filters import Microversion
from placement_server.candidates.query.query import CandidateQuery
from placement_server.candidates.response import Renderer
from placement_server.candidates.search.search import Limits, Search
from placement_server.store.store import Store

# From about here on the store is faster without a list of ids.
FEW_PROVIDERS = 100

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Answer:
    """The JSON body of an answer.

    :param chunks: its bytes in order.
    :param account: where they are counted until it is closed: when they have been sent.
    """

    chunks: list[bytes]
    account: Account


class CandidateService:
    """Answers queries from an index that it keeps equal to a store. Thread safe.

    :param randomize: a random sample under a limit, a random order without one.
    :param max_candidates: the most candidates that are generated, -1 for no maximum.
    :param strategy: the order in which they are generated where there is a maximum.
    :param deadline: seconds after which a search gives up.
    :param memory: what searches may hold; by default there is no bound.
    :param heavy: the places for heavy searches; by default no search is heavy.
    :param feed: a feed of the store; a new one when absent.
    """

    def __init__(
        self,
        store: Store,
        *,
        randomize: bool = False,
        max_candidates: int = -1,
        strategy: str = "depth-first",
        deadline: float = 30.0,
        memory: SearchMemory | None = None,
        heavy: HeavySearches | None = None,
        feed: Feed | None = None,
    ) -> None:
        self.feed = feed or Feed(store)
        self._random = random.SystemRandom() if randomize else None
        self._max_candidates = max_candidates
        self._breadth_first = strategy == "breadth-first"
        self._deadline = deadline
        self._memory = memory
        self._heavy = heavy
        self._summaries = SummaryCache(memory.summaries) if memory is not None else SummaryCache()

    def answer(
        self,
        query: CandidateQuery,
        microversion: Microversion,
        on_heavy: Callable[[], None] = lambda: None,
    ) -> Answer:
        """Return the JSON body for a query.

        :param on_heavy: called once if the search becomes heavy, before it may have to wait.
        :raises placement_server.candidates.errors.QueryError: a class or trait does not exist.
        :raises placement_server.candidates.errors.SearchGaveUp: out of time or memory, or too many
            found.
        :raises placement_server.store.errors.StoreError: the database cannot be read.
        """
        # Loading the index does not count as effort of the search.
        index = self.feed.index()
        account = Account(self._memory)
        chunks = self._bounded(account, on_heavy, partial(self._body, query, microversion, index))
        account.settle(sum(map(len, chunks)))
        return Answer(chunks, account)

    def _body(
        self,
        query: CandidateQuery,
        microversion: Microversion,
        index: Index,
        account: Account,
        effort: Effort,
    ) -> list[bytes]:
        search = Search(
            query,
            index,
            Limits(query.limit, self._max_candidates, self._breadth_first, self._deadline),
            one_per_tree=microversion < (1, 29),
            shuffle=self._random,
            account=account,
            effort=effort,
        )
        renderer = Renderer(query, search.plan, index, microversion, self._summaries, account)
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

    def explain(
        self,
        query: CandidateQuery,
        microversion: Microversion,
        on_heavy: Callable[[], None] = lambda: None,
    ) -> Explanation:
        """Explain why a query has the candidates that it has; raises what :meth:`answer` does."""
        index = self.feed.index()
        account = Account(self._memory)
        explanation = self._bounded(
            account, on_heavy, partial(self._explanation, query, microversion, index)
        )
        account.close()
        return explanation

    def _explanation(
        self,
        query: CandidateQuery,
        microversion: Microversion,
        index: Index,
        account: Account,
        effort: Effort,
    ) -> Explanation:
        return explain(
            query,
            index,
            one_per_tree=microversion < (1, 29),
            seconds=self._deadline,
            account=account,
            effort=effort,
        )

    def _bounded(
        self,
        account: Account,
        on_heavy: Callable[[], None],
        search: Callable[[Account, Effort], _Result],
    ) -> _Result:
        """Run a search; afterwards its place is free, and its memory if it gave up."""
        effort = Effort(self._heavy, on_heavy)
        try:
            return search(account, effort)
        except SearchGaveUp as error:
            # The frames it comes from hold what was found, for as long as the error is around.
            error.__traceback__ = None
            account.close()
            raise
        finally:
            effort.end()
