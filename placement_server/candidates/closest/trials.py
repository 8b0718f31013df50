"""Trials of changed queries: whether one has a candidate, and in how many trees."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from placement_server.candidates.bounds import sizes
from placement_server.candidates.bounds.heavy import SearchEffort
from placement_server.candidates.bounds.memory import Account
from placement_server.candidates.errors import OutOfTime
from placement_server.candidates.index.index import Index
from placement_server.candidates.query.query import CandidateQuery, RequestGroup
from placement_server.candidates.search.search import Search, SearchLimits

# Of queries with more groups than this nothing is kept: the next is seldom like one before.
_MOST_GROUPS = 64
# What is kept about a group, in bytes.
_GROUP_SIZE = 1024


@dataclass(frozen=True, slots=True)
class Opened:
    """The trees that have a candidate.

    :param example: the slot of the root of the first of them; -1 where there is none.
    """

    trees: int
    example: int


@dataclass(slots=True)
class Trials:
    """Searches on one state of the index, which share a deadline and an account of memory.

    :param seconds: until when trials go on; later ones give up.
    :param one_per_tree: see :class:`Search`.
    """

    index: Index
    seconds: float
    one_per_tree: bool = False
    account: Account = field(default_factory=Account)
    effort: SearchEffort = field(default_factory=SearchEffort)
    clock: Callable[[], float] = time.monotonic
    _ends_at: float = field(init=False)
    _works: dict[Hashable, bool] = field(init=False, default_factory=dict)
    _opened_by_kind: dict[Hashable, Opened] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Start the time."""
        self._ends_at = self.clock() + self.seconds

    @contextmanager
    def search(self, query: CandidateQuery, limit: int | None = None) -> Iterator[Search]:
        """Make a search; what it holds is given back at the end of the block.

        :param limit: how many candidates will be asked for.
        :raises SearchGaveUp: the time is over, or there is no place for one more heavy search.
        """
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
                clock=self.clock,
                account=self.account,
                effort=self.effort,
            )
        finally:
            self.account.give(self.account.held_bytes - held_bytes)

    def works(self, query: CandidateQuery) -> bool:
        """Check whether a query has a candidate."""
        if len(query.groups) > _MOST_GROUPS:
            return self._has_root(query)
        key = _kind(query)
        works = self._works.get(key)
        if works is None:
            works = self._works[key] = self._has_root(query)
            self._keep(query)
        return works

    def _has_root(self, query: CandidateQuery) -> bool:
        with self.search(query, 1) as search:
            return next(search.roots(), None) is not None

    def count_opened(self, query: CandidateQuery) -> Opened:
        """Count the trees that have a candidate."""
        key = _kind(query)
        opening = self._opened_by_kind.get(key)
        if opening is None:
            with self.search(query) as search:
                roots = list(search.roots())
            opening = self._opened_by_kind[key] = Opened(len(roots), roots[0] if roots else -1)
            self._keep(query)
        return opening

    def _keep(self, query: CandidateQuery) -> None:
        """Count what is kept about a query."""
        self.account.take(sizes.ENTRY + len(query.groups) * _GROUP_SIZE)


def _kind(query: CandidateQuery) -> Hashable:
    """Return what is equal for queries that differ in the names and the order of groups only.

    Groups for devices of one kind come in eights: what is known of one change is known of eight.
    """
    bound_suffixes = frozenset(
        suffix for subtree in query.same_subtree for suffix in subtree.together | subtree.apart
    )
    groups = Counter(_group_kind(group, query, bound_suffixes) for group in query.groups)
    return (
        frozenset(groups.items()),
        query.group_policy,
        frozenset(query.same_subtree),
        query.root_required,
        query.root_forbidden,
        query.root_member_of,
        query.root_forbidden_aggregates,
    )


def _group_kind(
    group: RequestGroup, query: CandidateQuery, bound_suffixes: frozenset[str]
) -> Hashable:
    name = group.suffix if not group.suffix or group.suffix in bound_suffixes else None
    return (
        name,
        group.suffix in query.isolate,
        frozenset(group.resources),
        frozenset(group.required),
        group.forbidden,
        frozenset(group.member_of),
        group.forbidden_aggregates,
        group.in_tree,
    )
