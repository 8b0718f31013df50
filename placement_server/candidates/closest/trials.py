"""Trials of changed queries: whether one has a candidate, and in how many trees."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from operator import attrgetter

from placement_server.candidates.errors import OutOfTime
from placement_server.candidates.index.index import Index
from placement_server.candidates.limits import sizes
from placement_server.candidates.limits.heavy import SearchEffort
from placement_server.candidates.limits.memory import Account
from placement_server.candidates.query.query import CandidateQuery
from placement_server.candidates.search.reporter import SILENT, Reporter
from placement_server.candidates.search.search import Search, SearchLimits

# Of queries with more groups than this nothing is kept: the next is seldom like one before.
_MOST_GROUPS = 64
# What is kept about a group, in bytes.
_GROUP_SIZE = 1024

_TERMS = "required", "forbidden", "member_of", "forbidden_aggregates"
_OF_GROUP = attrgetter("resources", "in_tree", *_TERMS)
_OF_QUERY = attrgetter("same_subtree", "group_policy", *(f"root_{name}" for name in _TERMS))


@dataclass(slots=True)
class Trials:
    """Searches on one state of the index, which share a deadline and an account of memory.

    :param seconds: until when trials go on; later ones give up.
    :param one_per_tree: see `Search`.
    """

    index: Index
    seconds: float
    one_per_tree: bool = False
    account: Account = field(default_factory=Account)
    effort: SearchEffort = field(default_factory=SearchEffort)
    clock: Callable[[], float] = time.monotonic
    _ends_at: float = field(init=False)
    _openings: dict[Hashable, tuple[int, int]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Start the time."""
        self._ends_at = self.clock() + self.seconds

    def works(self, query: CandidateQuery) -> bool:
        """Check whether a query has a candidate; raises what `opening` does."""
        return self.opening(query, 1)[0] > 0

    def opening(self, query: CandidateQuery, most: int | None = None) -> tuple[int, int]:
        """Return how many trees have a candidate, up to some number, and the first of their roots.

        :returns: for the root its slot, -1 where there is none.
        :raises SearchGaveUp: the time is over, or there is no place for one more heavy search.
        """
        key = (_kind(query), most) if len(query.groups) <= _MOST_GROUPS else None
        opening = self._openings.get(key)
        if opening is None:
            with self.roots(query, most) as found_roots:
                roots = list(islice(found_roots, most))
            opening = len(roots), roots[0] if roots else -1
            if key is not None:
                self._openings[key] = opening
                self.account.take(sizes.ENTRY + len(query.groups) * _GROUP_SIZE)
        return opening

    @contextmanager
    def roots(
        self, query: CandidateQuery, limit: int | None = None, reporter: Reporter = SILENT
    ) -> Iterator[Iterator[int]]:
        """Search for roots; what the search holds is given back at the end of the block."""
        seconds_left = self._ends_at - self.clock()
        if seconds_left <= 0:
            raise OutOfTime(self.seconds, 0)
        self.effort.look(seconds_left)
        held_bytes = self.account.held_bytes
        try:
            yield Search(
                query,
                self.index,
                SearchLimits(limit, seconds=seconds_left),
                one_per_tree=self.one_per_tree,
                reporter=reporter,
                clock=self.clock,
                account=self.account,
                effort=self.effort,
            ).roots()
        finally:
            self.account.give(self.account.held_bytes - held_bytes)


def _kind(query: CandidateQuery) -> Hashable:
    """Return what is equal for queries that differ in the names and the order of groups only.

    Groups for devices of one kind come in eights: what is known of one is known of eight.
    """
    named_suffixes = {""}.union(
        *(subtree.together | subtree.apart for subtree in query.same_subtree)
    )
    groups = Counter(
        (g.suffix in named_suffixes and g.suffix, g.suffix in query.isolate, _OF_GROUP(g))
        for g in query.groups
    )
    return frozenset(groups.items()), _OF_QUERY(query)
