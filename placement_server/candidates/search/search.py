"""The search for candidates: from a query and an index to a lazy sequence.

No input or output, no clock of its own, no global. The order of the candidates:

1. The roots are visited in rounds, by ascending provider id: the first round takes one candidate
   of each tree, the second another one of each tree that has another, and so on (breadth first).
   The `depth-first` strategy, which only counts under a maximum of candidates, takes all of a
   tree before the next. Candidates that sharing providers serve alone do not belong to the
   trees that reach them: the first of the trees that these providers are in is visited for them
   once more.
2. Candidates that differ in amounts come first. Those that only exchange which group took which
   provider come when all trees have run out of the first sort (see `distinct_first` for what
   is done where there are very many of them).
3. Within a tree: providers in preorder (children by ascending provider id), then sharing ones by
   the id of their root and in preorder.
"""

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import compress, islice, repeat, takewhile
from operator import attrgetter, itemgetter
from typing import NamedTuple

from msgspec import Struct, structs

from placement_server.candidates import sizes
from placement_server.candidates.errors import OutOfTime, TooManyCandidates
from placement_server.candidates.index.arrays import IntArray
from placement_server.candidates.index.index import Index
from placement_server.candidates.limits import Account, Deadline, SearchEffort
from placement_server.candidates.query.query import CandidateQuery, Plan
from placement_server.candidates.search.course import Course
from placement_server.candidates.search.eligible import (
    EligibleProviders,
    find_eligible,
    lone_roots,
)
from placement_server.candidates.search.known_query import known_query
from placement_server.candidates.search.look_ahead import find_contradiction, is_trivial
from placement_server.candidates.search.placements import (
    ClassPlacements,
    FirstPlacements,
    PlacementsByClass,
    Series,
)
from placement_server.candidates.search.problem import Positions, Problem
from placement_server.candidates.search.solver import Solver
from placement_server.candidates.search.tree_classes import TreeView
from placement_server.candidates.search.visits import Visits

MOST_CANDIDATES = 500_000
_FIRST_CHUNK = 16
_LARGEST_CHUNK = 2048
# Candidates between two looks at the clock.
_BETWEEN_TICKS = 256


class Candidate(NamedTuple):
    """One way to satisfy all groups: a placement in a tree."""

    placement: Positions
    tree: TreeView

    def slots(self) -> tuple[int, ...]:
        """Return the slot that serves each item of the plan."""
        return tuple([self.tree.slot(position) for position in self.placement])


class LoneCandidates(Struct, eq=False):
    """The candidates of trees of one provider, each of which serves everything.

    :param roots: their slots, in order.
    :param items: how many items they serve.
    """

    roots: list[int]
    items: int

    def __iter__(self) -> Iterator[Candidate]:
        placement = (0,) * self.items
        return (Candidate(placement, TreeView(root, 1, ())) for root in self.roots)


_root: Callable[[TreeView], int] = attrgetter("root")
_placement: Callable[[tuple[Positions | None, TreeView]], Positions | None] = itemgetter(0)
# Calling the class costs twice this.
_candidate: Callable[[tuple[Positions | None, TreeView]], Candidate] = partial(
    tuple.__new__, Candidate
)


class SearchLimits(Struct, frozen=True):
    """How far a search goes.

    :param limit: the most candidates to return.
    :param maximum: the most candidates to generate, -1 for no maximum.
    :param breadth_first: the order of generation under a maximum.
    :param most: at how many candidates to give up: a query without a limit for ten of ten equal
        devices has millions, which no server can hold in memory.
    """

    limit: int | None = None
    maximum: int = -1
    breadth_first: bool = False
    most: int = MOST_CANDIDATES


@dataclass(slots=True)
class Search:
    """One search. Iterate `candidates` once.

    :param one_per_tree: drop combinations of two providers of one tree.
    :param shuffle: a source of randomness for a random order, None for the canonical one.
    :param deadline: when to give up.
    :param account: where the search counts what it holds.
    :param effort: where it is heavy after a while.
    :param course: where the search reports what it does.
    :ivar eligible: the providers that can serve each item, and the roots that are left.
    """

    query: CandidateQuery
    index: Index
    limits: SearchLimits = field(default_factory=SearchLimits)
    one_per_tree: bool = False
    shuffle: random.Random | None = None
    course: Course | None = None
    deadline: Deadline = field(default_factory=Deadline)
    account: Account = field(default_factory=Account)
    effort: SearchEffort = field(default_factory=SearchEffort)
    plan: Plan = field(init=False)
    eligible: EligibleProviders = field(init=False)
    _is_lone: bool = field(init=False)
    _wanted_count: int = field(init=False)
    _found_count: int = field(init=False, default=0)
    _tick_at: int = field(init=False, default=0)
    # The classes of the trees of which the first candidates are being yielded.
    _yielding: list[ClassPlacements] = field(init=False, default_factory=list)
    _firsts: FirstPlacements = field(init=False, default_factory=FirstPlacements)

    def __post_init__(self) -> None:
        """Find what is eligible: names are checked here.

        :raises UnknownName: a class or trait is not known.
        """
        query, index = self.query, self.index
        known = known_query(query, index.names)
        of_lone = known.of_lone if index.is_flat and self.course is None else None
        self._is_lone = of_lone is not None
        if of_lone is not None:
            self.eligible = EligibleProviders(roots=lone_roots(of_lone, index, self.account))
        else:
            self.eligible = find_eligible(query, known, index, self.account, self.course)
        self.plan = known.plan
        # Under a maximum, what the filter drops still counts as generated.
        if self.one_per_tree and index.has_nested and self.limits.maximum < 0:
            self.plan = known.plan._replace(one_per_tree=True)
        # How many candidates are asked for whatever they are, if there are as many.
        limits, maximum = self.limits, self.limits.maximum
        most = limits.most + 1 if maximum < 0 else maximum
        self._wanted_count = most if limits.limit is None else limits.limit
        if maximum >= 0:
            drops_some = self.one_per_tree and self.index.has_nested
            self._wanted_count = 0 if drops_some else min(maximum, self._wanted_count)

    def candidates(self) -> Iterable[Candidate]:
        """Return the candidates in order.

        :raises SearchGaveUp: the time is over before the search is, or there are too many.
        """
        if not len(self.eligible.roots):
            return ()
        if self._is_lone and self.shuffle is None:
            roots = self.eligible.roots[: self._wanted_count]
            # More are given in chunks, and the clock is looked at between them.
            if len(roots) <= min(self.limits.most, _LARGEST_CHUNK):
                self.tick()
                return LoneCandidates(roots.tolist(), len(self.plan.items))
        is_deep = self.limits.maximum >= 0 and not self.limits.breadth_first
        candidates = self._depth_first() if is_deep else self._breadth_first()
        if self.limits.maximum >= 0:
            candidates = islice(candidates, self.limits.maximum)
            if self.one_per_tree and self.index.has_nested:
                candidates = filter(self._has_one_per_tree, candidates)
        if self.shuffle is not None and (self.limits.maximum >= 0 or self.limits.limit is None):
            candidates = self._shuffle(candidates)
        return islice(candidates, self.limits.limit)

    def roots(self) -> Iterator[int]:
        """Yield the slots of the roots of all trees with a candidate, in the order of the visits.

        A tree counts with what sharing providers serve it, and so may any other that they serve.

        :raises SearchGaveUp: the time is over before the search is.
        """
        if not len(self.eligible.roots):
            return
        firsts = FirstPlacements()
        try:
            for views, classes in self._chunks(whole=True):
                yield from map(_root, compress(views, map(firsts.__getitem__, classes)))
        finally:
            firsts.clear()

    def repeated_on(self, index: Index) -> "Search":
        """Return the same search on another state, which has what is left of the time."""
        return replace(self, index=index)

    def classes_of(self, roots: IntArray) -> Iterator[tuple[TreeView, ClassPlacements]]:
        """Yield some trees, each with the placements of its class, sharing providers' too.

        :param roots: some of those that are eligible.
        """
        self.eligible = structs.replace(self.eligible, roots=roots)
        for views, classes in self._chunks(whole=True):
            yield from zip(views, classes, strict=True)

    def _shuffle(self, candidates: Iterator[Candidate]) -> Iterator[Candidate]:
        assert self.shuffle is not None
        in_random_order = []
        for candidate in candidates:
            self.account.take(sizes.candidate())
            in_random_order.append(candidate)
        self.shuffle.shuffle(in_random_order)
        return iter(in_random_order)

    def tick(self) -> None:
        """Give up when it is time to; wait for a place when the search is heavy."""
        seconds_left = self.deadline.left()
        if seconds_left < 0:
            raise OutOfTime(self.deadline.seconds, self._found_so_far())
        if self._found_count > self.limits.most:
            raise TooManyCandidates(self.limits.most, self._found_so_far())
        self.effort.look(seconds_left)
        self.account.heavy = self.effort.heavy
        self._tick_at = min(self._found_count + _BETWEEN_TICKS, self.limits.most + 1)

    def _found_so_far(self) -> int:
        # The first candidates of many trees are counted once all are yielded.
        yielded_placements = takewhile(self._firsts.__contains__, self._yielding)
        return self._found_count + sum(
            1 for placements in yielded_placements if self._firsts[placements]
        )

    def _depth_first(self) -> Iterator[Candidate]:
        for views, classes in self._chunks():
            for tree, placements in zip(views, classes, strict=True):
                for series in (placements.distinct, placements.permutation_series):
                    if series is not None:
                        yield from self._of_tree(tree, series, 0)

    def _breadth_first(self) -> Iterator[Candidate]:
        visited_views: list[tuple[TreeView, ClassPlacements]] = []
        firsts = self._firsts
        try:
            for views, classes in self._chunks():
                # An answer of a thousand hosts is made here: what is done for each is done in C.
                self._yielding = classes
                pairs = zip(map(firsts.__getitem__, classes), views, strict=True)
                yield from map(_candidate, filter(_placement, pairs))
                self._yielding = []
                self._found_count += len(classes) - [firsts[trees] for trees in classes].count(None)
                visited_views += zip(views, classes, strict=True)
        finally:
            # What is in a circle (with the solvers) would wait for the garbage collector.
            firsts.clear()
            self._yielding = []
        yield from self._rounds([(view, classes.distinct) for view, classes in visited_views], 1)
        permuted = [(view, classes.permutation_series) for view, classes in visited_views]
        yield from self._rounds([(view, series) for view, series in permuted if series], 0)

    def _of_tree(self, tree: TreeView, series: Series, number: int) -> Iterator[Candidate]:
        """Yield what a series has for one tree, from the placement with a number on."""
        while placements := series.some(number, self._at_once(number)):
            self._found_count += len(placements)
            yield from map(_candidate, zip(placements, repeat(tree)))
            number += len(placements)
            if self._found_count >= self._tick_at:
                self.tick()

    def _at_once(self, known_count: int) -> int:
        """Return how many placements to find together: one may take long that nobody asks for.

        :param known_count: how many of the tree there are already.
        """
        least = min(self._wanted_count, self._tick_at) - self._found_count
        return max(1, min(known_count, least))

    def _rounds(self, trees: list[tuple[TreeView, Series]], number: int) -> Iterator[Candidate]:
        every = list(dict.fromkeys(series for _tree, series in trees))
        # Asking the classes first, where they are few, spares a last round over the many trees.
        while trees and (
            len(every) == len(trees) or any(series.get(number) is not None for series in every)
        ):
            if len(trees) == 1:
                yield from self._of_tree(*trees[0], number)
                return
            remaining_trees = []
            for pair in trees:
                tree, series = pair
                placement = series.get(number)
                if placement is not None:
                    remaining_trees.append(pair)
                    self._found_count += 1
                    if self._found_count >= self._tick_at:
                        self.tick()
                    yield _candidate((placement, tree))
            if len(remaining_trees) < len(trees):
                every = [series for series in every if series.get(number) is not None]
            trees = remaining_trees
            number += 1

    def _chunks(
        self, *, whole: bool = False
    ) -> Iterator[tuple[list[TreeView], list[ClassPlacements]]]:
        """Yield what may have candidates, each tree with the placements of its class, in chunks.

        Only as many as are asked for are sorted.

        :param whole: see `Visits`.
        """
        parts = self.index, self.plan, self.eligible, self.account, self.shuffle
        visits = Visits(*parts, whole=whole)
        by_class = PlacementsByClass(lambda number: self._placements(visits.problems[number]))
        pick = by_class.in_any_order(self.shuffle) if self.shuffle else by_class.__getitem__
        limit = _LARGEST_CHUNK if self.limits.limit is None else self.limits.limit
        has_links = len(self.eligible.links.share) > 0
        start, chunk = 0, max(_FIRST_CHUNK, min(limit, _LARGEST_CHUNK))
        while start < len(visits):
            self.tick()
            views, numbers = visits.classes(start, start + chunk)
            links = sum([len(view.shares) for view in views]) if has_links else 0
            self.account.take(sizes.visits(len(views), links))
            picked_placements = list(map(pick, numbers))
            if self.course is not None:
                self.course.trees_tried += len(views)
                for view, placements in zip(views, picked_placements, strict=True):
                    if placements.distinct.get(0) is None:
                        self.course.tree_rejected(view.root, placements.reason)
            yield views, picked_placements
            start += chunk
            chunk = min(2 * chunk, _LARGEST_CHUNK)

    def _placements(self, problem: Problem) -> ClassPlacements:
        self.account.take(sizes.tree_class(self.plan, len(problem.ancestors)))
        reason = find_contradiction(self.plan, problem)
        if reason:
            return ClassPlacements(Series(iter(()), self.account, 0), None, reason)
        if is_trivial(self.plan, problem):
            count = len(self.plan.items)
            only = Series(iter([(0,) * count]), self.account, sizes.placement(count))
            return ClassPlacements(only, None, "", problem)
        solver = Solver(self.plan, problem, self.tick, self.shuffle, self.account, self.course)
        return ClassPlacements.of(solver, self.account)

    def _has_one_per_tree(self, candidate: Candidate) -> bool:
        slots = list(set(candidate.slots()))
        return len(set(self.index.root[slots].tolist())) == len(slots)
