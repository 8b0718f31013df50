"""The search: from a query and an index to a lazy sequence of candidates.

No input or output, no clock of its own, no global. The order of the candidates:

1. The roots are visited in rounds, by ascending provider id: the first round takes one candidate
   of each tree, the second another one of each tree that has another, and so on (breadth first).
   The ``depth-first`` strategy, which only counts under a maximum of candidates, takes all of a
   tree before the next. Candidates that sharing providers serve alone are no tree's that reaches
   them: the first of the trees that these providers are in is visited for them once more.
2. Candidates that differ in amounts come first. Those that only exchange which group took which
   provider come when all trees have run out of the first sort (see :mod:`new_amounts` for what is
   done where there are very many of them).
3. Within a tree: providers in preorder (children by ascending provider id), then sharing ones by
   the id of their root and in preorder.
"""

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice, takewhile
from operator import itemgetter
from typing import Any, NamedTuple

from placement_server.candidates.bounds import sizes
from placement_server.candidates.bounds.heavy import Effort
from placement_server.candidates.bounds.memory import Account
from placement_server.candidates.errors import OutOfTime, TooManyCandidates
from placement_server.candidates.index.index import Index
from placement_server.candidates.query.compiled import Plan, plan
from placement_server.candidates.query.query import CandidateQuery
from placement_server.candidates.search.distinct_first import may_repeat, new_first
from placement_server.candidates.search.eligible import Eligible, find_eligible
from placement_server.candidates.search.permutations import swaps
from placement_server.candidates.search.problem import Positions, Problem
from placement_server.candidates.search.reporter import SILENT, Reporter
from placement_server.candidates.search.solver import Solver
from placement_server.candidates.search.tree_classes import TreeView
from placement_server.candidates.search.visits import Visits

Clock = Callable[[], float]

MOST_CANDIDATES = 500_000
_FIRST_CHUNK = 64
_LARGEST_CHUNK = 2048
# Candidates between two looks at the clock.
_BETWEEN_TICKS = 256
# With a random order, this many independent orders are made for trees that are alike.
_RANDOM_ORDERS = 16


class Placement:
    """Where the items go in one kind of tree; shared by all trees of the kind.

    :ivar form: what a renderer keeps about it.
    """

    __slots__ = ("form", "positions")

    def __init__(self, positions: Positions) -> None:
        self.positions = positions
        self.form: Any = None


class Candidate(NamedTuple):
    """One way to satisfy all groups: a placement in a tree."""

    placement: Placement
    tree: TreeView

    def slots(self) -> tuple[int, ...]:
        """Return the slot that serves each item of the plan."""
        return tuple([self.tree.slot(position) for position in self.placement.positions])


_placement: Callable[[tuple[Placement | None, TreeView]], Placement | None] = itemgetter(0)
# Calling the class costs twice this.
_candidate: Callable[[tuple[Placement | None, TreeView]], Candidate] = partial(
    tuple.__new__, Candidate
)


@dataclass(frozen=True, slots=True)
class Limits:
    """How far a search goes.

    :param limit: the most candidates to return.
    :param maximum: the most candidates to generate, -1 for no maximum.
    :param breadth_first: the order of generation under a maximum.
    :param seconds: when to give up.
    :param most: at how many candidates to give up: a query without a limit for ten of ten equal
        devices has millions, which no server can hold in memory.
    """

    limit: int | None = None
    maximum: int = -1
    breadth_first: bool = False
    seconds: float = float("inf")
    most: int = MOST_CANDIDATES


class _Series:
    """Placements of one kind of tree, found as they are asked for.

    :param account: counts them.
    :param size: what each of them takes.
    """

    __slots__ = ("_account", "_more", "_size", "found")

    def __init__(self, more: Iterator[Positions], account: Account, size: int) -> None:
        self.found: list[Placement] = []
        self._more: Iterator[Positions] | None = more
        self._account = account
        self._size = size

    def get(self, number: int) -> Placement | None:
        """Return the placement with a number, one more than found at most; None at the end."""
        if number < len(self.found):
            return self.found[number]
        if self._more is None:
            return None
        positions = next(self._more, None)
        if positions is None:
            self._more = None
            return None
        self._account.take(self._size)
        placement = Placement(positions)
        self.found.append(placement)
        return placement


class _Kind:
    """What one kind of tree has: placements of distinct amounts, and exchanges of alike items."""

    __slots__ = ("distinct", "reason", "swaps")

    def __init__(self, solver: Solver, account: Account) -> None:
        solutions = solver.solutions()
        put_off: list[Positions] = []
        repeats = not solver.reason and may_repeat(solver.plan, solver.alike)
        if repeats:
            solutions = new_first(solver.plan, solutions, put_off, account)
        size = sizes.placement(len(solver.plan.items))
        self.distinct = _Series(solutions, account, size)
        # Only asked for when all distinct ones have been found.
        known = self.distinct.found
        self.swaps: _Series | None = None
        if repeats or (not solver.reason and solver.alike):
            exchanges = (swap for each in known for swap in swaps(solver.alike, each.positions))
            others = (
                swap for each in put_off for swap in chain((each,), swaps(solver.alike, each))
            )
            self.swaps = _Series(chain(exchanges, others), account, size)
        self.reason = solver.reason or "no combination of the providers that fit"


class _Firsts(dict[_Kind, Placement | None]):
    """The first placement of each kind, None where there is none."""

    def __missing__(self, kind: _Kind) -> Placement | None:
        placement = self[kind] = kind.distinct.get(0)
        return placement


class _Kinds(dict[int, _Kind]):
    """The kinds by number, each made when the first tree of it comes.

    :param make: makes a kind; with a random order, another order of it each time.
    """

    def __init__(self, make: Callable[[int], _Kind]) -> None:
        self._make = make
        self._orders: dict[int, list[_Kind]] = {}

    def __missing__(self, number: int) -> _Kind:
        kind = self[number] = self._make(number)
        return kind

    def in_any_order(self, shuffle: random.Random) -> Callable[[int], _Kind]:
        """Return what gives one of several random orders of a kind, so that alike trees differ."""

        def pick(number: int) -> _Kind:
            orders = self._orders.setdefault(number, [])
            if len(orders) < _RANDOM_ORDERS:
                orders.append(self._make(number))
                return orders[-1]
            return shuffle.choice(orders)

        return pick


@dataclass(slots=True)
class Search:
    """One search. Iterate :meth:`candidates` once.

    :param one_per_tree: drop combinations of two providers of one tree.
    :param shuffle: a source of randomness for a random order, None for the canonical one.
    :param clock: monotonic seconds.
    :param account: where the search counts what it holds.
    :param effort: where it is heavy after a while.
    """

    query: CandidateQuery
    index: Index
    limits: Limits = field(default_factory=Limits)
    one_per_tree: bool = False
    shuffle: random.Random | None = None
    reporter: Reporter = SILENT
    clock: Clock = time.monotonic
    account: Account = field(default_factory=Account)
    effort: Effort = field(default_factory=Effort)
    plan: Plan = field(init=False)
    _eligible: Eligible = field(init=False)
    _ends_at: float = field(init=False)
    _found: int = field(init=False, default=0)
    _tick_at: int = field(init=False, default=0)
    # The kinds of the trees of which the first candidates are being given.
    _giving: list[_Kind] = field(init=False, default_factory=list)
    _firsts: _Firsts = field(init=False, default_factory=_Firsts)

    def __post_init__(self) -> None:
        """Find what is eligible: names are checked here.

        :raises UnknownName: a class or trait is not known.
        """
        self._ends_at = self.clock() + self.limits.seconds
        self._eligible = find_eligible(self.query, self.index, self.reporter, self.account)
        # Under a maximum, what the filter drops still counts as generated.
        early = self.one_per_tree and self.index.nested and self.limits.maximum < 0
        names = self.index.names.class_ids if len(self._eligible.roots) else _AnyName()
        self.plan = plan(self.query, names, one_per_tree=early)

    def candidates(self) -> Iterator[Candidate]:
        """Yield the candidates in order.

        :raises SearchGaveUp: the time is over before the search is, or there are too many.
        """
        if not len(self._eligible.roots):
            return iter(())
        found = self._in_order()
        if self.limits.maximum >= 0:
            found = islice(found, self.limits.maximum)
            if self.one_per_tree and self.index.nested:
                found = (each for each in found if self._one_per_tree(each))
        if self.shuffle is not None and (self.limits.maximum >= 0 or self.limits.limit is None):
            found = self._shuffled(found)
        return islice(found, self.limits.limit)

    def visit_trees(self) -> None:
        """Look for a first candidate in every tree, for the reporter alone."""
        if len(self._eligible.roots):
            for _tree, kind in self._trees(whole=True):
                kind.distinct.get(0)

    def _shuffled(self, found: Iterator[Candidate]) -> Iterator[Candidate]:
        assert self.shuffle is not None
        candidates = []
        for candidate in found:
            self.account.take(sizes.candidate())
            candidates.append(candidate)
        self.shuffle.shuffle(candidates)
        return iter(candidates)

    def _tick(self) -> None:
        """Give up when it is time to; wait for a place when the search is heavy."""
        now = self.clock()
        if now > self._ends_at:
            raise OutOfTime(self.limits.seconds, self._found_so_far())
        if self._found > self.limits.most:
            raise TooManyCandidates(self.limits.most, self._found_so_far())
        self.effort.look(self._ends_at - now)
        self.account.heavy = self.effort.heavy
        self._tick_at = min(self._found + _BETWEEN_TICKS, self.limits.most + 1)

    def _found_so_far(self) -> int:
        # The first candidates of many trees are counted once all are given.
        given = takewhile(self._firsts.__contains__, self._giving)
        return self._found + sum(1 for kind in given if self._firsts[kind] is not None)

    def _in_order(self) -> Iterator[Candidate]:
        if self.limits.maximum >= 0 and not self.limits.breadth_first:
            return self._depth_first()
        return self._breadth_first()

    def _depth_first(self) -> Iterator[Candidate]:
        for tree, kind in self._trees():
            for series in (kind.distinct, kind.swaps):
                number = 0
                while series is not None and (placement := series.get(number)) is not None:
                    self._found += 1
                    if self._found >= self._tick_at:
                        self._tick()
                    yield Candidate(placement, tree)
                    number += 1

    def _breadth_first(self) -> Iterator[Candidate]:
        visited: list[tuple[TreeView, _Kind]] = []
        firsts = self._firsts
        try:
            for views, kinds in self._chunks():
                # An answer of a thousand hosts is made here: what is done for each is done in C.
                self._giving = kinds
                pairs = zip(map(firsts.__getitem__, kinds), views, strict=True)
                yield from map(_candidate, filter(_placement, pairs))
                self._giving = []
                self._found += len(kinds) - [firsts[kind] for kind in kinds].count(None)
                visited += zip(views, kinds, strict=True)
        finally:
            # What is in a circle (kinds, their solvers, this) would wait for the garbage collector.
            firsts.clear()
            self._giving = []
        yield from self._rounds([(view, kind.distinct) for view, kind in visited], 1)
        yield from self._rounds([(view, kind.swaps) for view, kind in visited if kind.swaps], 0)

    def _rounds(self, left: list[tuple[TreeView, _Series]], number: int) -> Iterator[Candidate]:
        every = list(dict.fromkeys(series for _tree, series in left))
        # Asking the few kinds first spares a last round over the many trees.
        while any(series.get(number) is not None for series in every):
            self._tick()
            going_on = []
            for each in left:
                tree, series = each
                placement = series.get(number)
                if placement is not None:
                    going_on.append(each)
                    self._found += 1
                    if self._found >= self._tick_at:
                        self._tick()
                    yield _candidate((placement, tree))
            left = going_on
            number += 1

    def _trees(self, *, whole: bool = False) -> Iterator[tuple[TreeView, _Kind]]:
        """Yield what may have candidates, each with the placements of its kind.

        :param whole: see :class:`Visits`.
        """
        for views, kinds in self._chunks(whole=whole):
            yield from zip(views, kinds, strict=True)

    def _chunks(self, *, whole: bool = False) -> Iterator[tuple[list[TreeView], list[_Kind]]]:
        """Yield what :meth:`_trees` does in chunks: only as many as are asked for are sorted."""
        visits = Visits(
            self.index,
            self.plan,
            self._eligible,
            self._tick,
            self.shuffle,
            whole=whole,
            account=self.account,
        )
        kinds = _Kinds(lambda number: self._kind(visits.problems[number]))
        pick = kinds.in_any_order(self.shuffle) if self.shuffle else kinds.__getitem__
        limit = _LARGEST_CHUNK if self.limits.limit is None else self.limits.limit
        start, chunk = 0, max(_FIRST_CHUNK, min(limit, _LARGEST_CHUNK))
        while start < len(visits):
            self._tick()
            views, numbers = visits.kinds(start, start + chunk)
            self.account.take(sizes.visits(len(views), sum([len(view.shares) for view in views])))
            picked = list(map(pick, numbers))
            if self.reporter.wants:
                for view, kind in zip(views, picked, strict=True):
                    self._report(view, kind)
            yield views, picked
            start += chunk
            chunk = min(2 * chunk, _LARGEST_CHUNK)

    def _kind(self, problem: Problem) -> _Kind:
        self.account.take(sizes.kind(self.plan, len(problem.ancestors)))
        solver = Solver(self.plan, problem, self._tick, self.shuffle, self.account)
        return _Kind(solver, self.account)

    def _report(self, tree: TreeView, kind: _Kind) -> None:
        if kind.distinct.get(0) is None:
            self.reporter.tree_rejected(tree.root, kind.reason)
        else:
            self.reporter.candidate()

    def _one_per_tree(self, candidate: Candidate) -> bool:
        slots = set(candidate.slots())
        roots = {int(self.index.root[slot]) for slot in slots}
        return len(roots) == len(slots)


class _AnyName(dict[str, int]):
    """Stands in for class ids when the answer is empty before all names were looked up."""

    def __missing__(self, key: str) -> int:
        return -1
