"""The search: from a query and an index to a lazy sequence of candidates.

No input or output, no clock of its own, no global. The order of the candidates:

1. The roots are visited in rounds, by ascending provider id: the first round takes one candidate
   of each tree, the second another one of each tree that has another, and so on (breadth first).
   The ``depth-first`` strategy, which only counts under a maximum of candidates, takes all of a
   tree before the next.
2. Candidates that differ in amounts come first. Those that only exchange which of several alike
   groups took which provider come when all trees have run out of the first sort.
3. Within a tree: providers in preorder (children by ascending provider id), then sharing ones.
"""

import random
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from placement_server.candidates.eligible import Eligible, find_eligible
from placement_server.candidates.errors import SearchGaveUp
from placement_server.candidates.index import Index
from placement_server.candidates.kinds import KindFinder, TreeView
from placement_server.candidates.plan import Plan, plan
from placement_server.candidates.query import CandidateQuery
from placement_server.candidates.reporter import SILENT, Reporter
from placement_server.candidates.solver import Positions, Solver

Clock = Callable[[], float]

_FIRST_CHUNK = 64
_LARGEST_CHUNK = 2048
# With a random order, this many independent orders are made for trees that are alike.
_RANDOM_ORDERS = 16


class Placement:
    """Where the items go in one kind of tree; shared by all trees of the kind.

    :ivar form: what a renderer keeps about it.
    """

    __slots__ = ("all_shared", "form", "positions")

    def __init__(self, positions: Positions, all_shared: bool) -> None:
        self.positions = positions
        self.all_shared = all_shared
        self.form: object = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to satisfy all groups: a placement in a tree."""

    placement: Placement
    tree: TreeView

    def slots(self) -> tuple[int, ...]:
        """Return the slot that serves each item of the plan."""
        return tuple(self.tree.slot(position) for position in self.placement.positions)


@dataclass(frozen=True, slots=True)
class Limits:
    """How far a search goes.

    :param limit: the most candidates to return.
    :param maximum: the most candidates to generate, -1 for no maximum.
    :param breadth_first: the order of generation under a maximum.
    :param seconds: when to give up.
    """

    limit: int | None = None
    maximum: int = -1
    breadth_first: bool = False
    seconds: float = float("inf")


class _Kind:
    """The placements of one kind of tree, found as they are asked for."""

    __slots__ = ("_found", "_more", "_more_swaps", "_shared", "_swapped", "reason")

    def __init__(self, solver: Solver) -> None:
        self._shared = solver.problem.shared
        self._found: list[Placement] = []
        self._swapped: list[Placement] = []
        self._more: Iterator[Positions] | None = solver.solutions()
        self._more_swaps: Iterator[Positions] | None = None
        if solver.reason == "" and solver.alike:
            self._more_swaps = (
                swap for each in self._found for swap in solver.swaps(each.positions)
            )
        self.reason = solver.reason or "no combination of the providers that fit"

    def distinct(self, number: int) -> Placement | None:
        """Return a placement that differs in amounts from those before it."""
        if number < len(self._found):
            return self._found[number]
        if self._more is not None:
            for positions in self._more:
                self._found.append(self._placement(positions))
                return self._found[-1]
            self._more = None
        return None

    def swap(self, number: int) -> Placement | None:
        """Return a placement that exchanges alike groups. Only once all distinct are found."""
        if number < len(self._swapped):
            return self._swapped[number]
        if self._more_swaps is not None:
            for positions in self._more_swaps:
                self._swapped.append(self._placement(positions))
                return self._swapped[-1]
            self._more_swaps = None
        return None

    def _placement(self, positions: Positions) -> Placement:
        shared = self._shared
        return Placement(
            positions, bool(shared) and all(shared >> each & 1 for each in positions)
        )


@dataclass(slots=True)
class Search:
    """One search. Iterate :meth:`candidates` once.

    :param one_per_tree: drop combinations of two providers of one tree.
    :param shuffle: a source of randomness for a random order, None for the canonical one.
    :param clock: monotonic seconds.
    """

    query: CandidateQuery
    index: Index
    limits: Limits = field(default_factory=Limits)
    one_per_tree: bool = False
    shuffle: random.Random | None = None
    reporter: Reporter = SILENT
    clock: Clock = time.monotonic
    plan: Plan = field(init=False)
    _eligible: Eligible = field(init=False)
    _ends_at: float = field(init=False)
    _yielded: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        """Find what is eligible: names are checked here.

        :raises UnknownName: a class or trait is not known.
        """
        self._ends_at = self.clock() + self.limits.seconds
        self._eligible = find_eligible(self.query, self.index, self.reporter)
        # Under a maximum, what the filter drops still counts as generated.
        early = self.one_per_tree and self.index.nested and self.limits.maximum < 0
        names = self.index.names.class_ids if len(self._eligible.roots) else _AnyName()
        self.plan = plan(self.query, names, one_per_tree=early)

    def candidates(self) -> Iterator[Candidate]:
        """Yield the candidates in order.

        :raises SearchGaveUp: the time is over before the search is.
        """
        if not len(self._eligible.roots):
            return iter(())
        found = self._distinct(self._in_order())
        if self.limits.maximum >= 0:
            found = _first(found, self.limits.maximum)
            if self.one_per_tree and self.index.nested:
                found = (each for each in found if self._one_per_tree(each))
            if self.shuffle is not None:
                generated = list(found)
                self.shuffle.shuffle(generated)
                found = iter(generated)
        if self.limits.limit is not None:
            found = _first(found, self.limits.limit)
        elif self.shuffle is not None:
            everything = list(found)
            self.shuffle.shuffle(everything)
            found = iter(everything)
        return self._counted(found)

    def _counted(self, found: Iterable[Candidate]) -> Iterator[Candidate]:
        for candidate in found:
            self._yielded += 1
            yield candidate

    def _tick(self) -> None:
        if self.clock() > self._ends_at:
            raise SearchGaveUp(self.limits.seconds, self._yielded)

    def _in_order(self) -> Iterator[Candidate]:
        if self.limits.maximum >= 0 and not self.limits.breadth_first:
            return self._depth_first()
        return self._breadth_first()

    def _depth_first(self) -> Iterator[Candidate]:
        for tree, kind in self._trees():
            for get in (kind.distinct, kind.swap):
                number = 0
                while (placement := get(number)) is not None:
                    yield Candidate(placement, tree)
                    number += 1

    def _breadth_first(self) -> Iterator[Candidate]:
        alive: list[tuple[TreeView, _Kind]] = []
        for tree, kind in self._trees():
            placement = kind.distinct(0)
            if placement is not None:
                alive.append((tree, kind))
                yield Candidate(placement, tree)
        every = alive
        number = 1
        while alive:
            left = []
            for each in alive:
                placement = each[1].distinct(number)
                if placement is not None:
                    left.append(each)
                    yield Candidate(placement, each[0])
            alive = left
            number += 1
            self._tick()
        alive = every
        number = 0
        while alive:
            left = []
            for each in alive:
                placement = each[1].swap(number)
                if placement is not None:
                    left.append(each)
                    yield Candidate(placement, each[0])
            alive = left
            number += 1
            self._tick()

    def _trees(self) -> Iterator[tuple[TreeView, _Kind]]:
        """Yield the trees that may have candidates, each with the placements of its kind."""
        finder = KindFinder(self.index, self.plan, self._eligible)
        roots = self._eligible.roots
        if self.shuffle is not None:
            order = list(range(len(roots)))
            self.shuffle.shuffle(order)
            roots = roots[order]
        kinds: dict[bytes, list[_Kind]] = {}
        start, chunk = 0, max(_FIRST_CHUNK, min(self.limits.limit or 0, _LARGEST_CHUNK))
        while start < len(roots):
            self._tick()
            for tree, key, row in finder.kinds(roots[start : start + chunk]):
                known = kinds.setdefault(key, [])
                if not known or (self.shuffle is not None and len(known) < _RANDOM_ORDERS):
                    known.append(
                        _Kind(Solver(self.plan, finder.problem(tree, row), self._tick, self.shuffle))
                    )
                    kind = known[-1]
                else:
                    kind = known[0] if self.shuffle is None else self.shuffle.choice(known)
                if self.reporter.wants:
                    self._report(tree, kind)
                yield tree, kind
            start += chunk
            chunk = min(2 * chunk, _LARGEST_CHUNK)

    def _report(self, tree: TreeView, kind: _Kind) -> None:
        if kind.distinct(0) is None:
            self.reporter.tree_rejected(tree.root, kind.reason)
        else:
            self.reporter.candidate(tree.root)

    def _distinct(self, found: Iterable[Candidate]) -> Iterator[Candidate]:
        """Drop what another anchor has given already: only sharing providers take part in it."""
        seen: set[tuple[int, ...]] = set()
        for candidate in found:
            if candidate.placement.all_shared:
                slots = candidate.slots()
                if slots in seen:
                    continue
                seen.add(slots)
            yield candidate

    def _one_per_tree(self, candidate: Candidate) -> bool:
        slots = set(candidate.slots())
        roots = {int(self.index.root[slot]) for slot in slots}
        return len(roots) == len(slots)


class _AnyName(dict[str, int]):
    """Stands in for class ids when the answer is empty before all names were looked up."""

    def __missing__(self, key: str) -> int:
        return -1


def _first(found: Iterable[Candidate], count: int) -> Iterator[Candidate]:
    if count <= 0:
        return
    for number, candidate in enumerate(found, 1):
        yield candidate
        if number == count:
            return
