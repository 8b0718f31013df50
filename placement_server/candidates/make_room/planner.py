"""The search for plans: branch and bound over places and evictions.

It goes backwards: first the request gets its place, where something may be lacking; consumers that
hold it are evicted and wait for a place of their own, where again others may be in the way. With
each number of moves all of this is tried before the next number is. Of the waiting the one with the
fewest places that lack nothing comes next. A plan is done when nobody waits, and there is an order
in which every move fits while its consumer holds both places.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain, combinations, islice, product
from typing import Final

import numpy as np
from msgspec.structs import replace

from placement_server.candidates.errors import OutOfTime
from placement_server.candidates.index.arrays import BoolArray
from placement_server.candidates.index.index import Index
from placement_server.candidates.limits import Account, Deadline, SearchEffort
from placement_server.candidates.make_room.holdings import Holdings
from placement_server.candidates.make_room.options import REQUEST, Options
from placement_server.candidates.make_room.places import Place, Places, State, summed
from placement_server.candidates.make_room.plan import (
    Bounds,
    Breakage,
    Move,
    Plan,
    find_order,
)
from placement_server.candidates.query.query import CandidateQuery
from placement_server.candidates.search.search import Search

# Of more places of the request than these, not every combination is tried.
_FEW: Final = 4
# Places that are compared for the moves of a plan, by what they break.
_JUDGED: Final = 3000
# What a consumer takes in the list of those that wait.
_ENTRY: Final = 8

_Search = Generator["_Search"]
"""A part of the search, which yields the parts below it.

They are stacked in a list: a rack has more guests than Python has levels of calls.
"""


class _LevelOver(Exception):
    """The time for plans of this many moves is over."""


class Planner:
    """One search for plans.

    :param query: the request; None where trees are only to be emptied.
    :param emptied_roots: the roots of the trees to be emptied.
    :param takes_request: over all slots, the roots of the trees that the request may use.
    :param takes_moves: the same of consumers that move.
    :ivar plans: the best first.
    :ivar is_proved: whether there is no better one within the bounds.
    """

    def __init__(
        self,
        index: Index,
        holdings: Holdings,
        query: CandidateQuery | None,
        emptied_roots: Sequence[int],
        takes_request: BoolArray,
        takes_moves: BoolArray,
        bounds: Bounds,
        account: Account,
        effort: SearchEffort,
        clock: Callable[[], float],
    ) -> None:
        self._holdings, self._bounds = holdings, bounds
        self._account, self._effort, self._clock = account, effort, clock
        self._ends_at = self._level_ends_at = clock() + bounds.seconds
        account.take(index.size * 8 * 3 * len(index.classes))
        self._state = State(index)
        unused = {number: np.zeros_like(view.used) for number, view in index.classes.items()}
        self._empty = index.with_use(unused)
        self._query, self._takes_request, self._takes_moves = query, takes_request, takes_moves
        self._forced = set(holdings.on_trees(emptied_roots)[0])
        self._rounds = bounds.count * (query is not None) + bounds.most_moves + len(self._forced)
        self._largest = {
            class_id: int(holdings.amount[holdings.class_id == class_id].max(initial=0))
            for class_id in index.classes
        }
        self._breakage = Breakage(index, self._state)
        self._options = Options(holdings, self._state, self._find_places, self._look, account)
        self._options.is_ordered = bounds.count <= _FEW
        self._stuck: list[int] | None = None
        self._is_every_way_tried = True
        self.plans: list[Plan] = []
        self.is_proved = holdings.is_whole

    def run(self) -> None:
        """Search.

        :raises SearchGaveUp: out of memory, or no place for one more heavy search.
        """
        # Where it makes no other difference, the largest is placed first.
        waiting = forced = tuple(sorted(self._forced, key=self._holdings.size, reverse=True))
        if self._query is not None:
            waiting = (REQUEST,) * self._bounds.count + waiting
        memory = self._holdings.memory_of(self._forced)
        for consumer in self._forced:
            self._state.add(self._holdings.held(consumer), 1)
        self._options.covers.let_out(self._forced)
        ends_at = self._ends_at
        if self._forced:
            # A quarter is for a plan with only some of them.
            self._ends_at -= self._bounds.seconds / 4
        for most in range(self._bounds.most_moves + 1):
            if most:
                self._options.is_guessed = True
                self._search(waiting, most, memory, 3)
                self._options.is_guessed = False
            is_last = most == self._bounds.most_moves or bool(self.plans)
            self._search(waiting, most, memory, 1 if is_last else 2)
            if self.plans or self._clock() >= self._ends_at:
                break
        if not self.plans and self._forced:
            self._ends_at, self._stuck = ends_at, []
            self._search(forced, 0, memory, 1)
        self.is_proved &= self._is_every_way_tried and self._options.is_whole
        if self.plans and self.plans[0].is_whole:
            self.is_proved |= len(self.plans[0].moves) == 0

    def _search(self, waiting: tuple[int, ...], most: int, memory: int, share: int) -> None:
        """Look for plans with so many more moves.

        :param share: which part of the time that is left may be used: the half, the third ...
        """
        now = self._clock()
        self._level_ends_at = now + max(0.0, self._ends_at - now) / share
        stack, size = [self._place(waiting, most, memory)], 0
        try:
            while stack:
                further_search = next(stack[-1], None)
                if further_search is None:
                    stack.pop()
                    continue
                stack.append(further_search)
                if len(stack) * self._rounds * _ENTRY > size:
                    self._account.take(self._rounds * _ENTRY)
                    size += self._rounds * _ENTRY
        except (_LevelOver, OutOfTime):
            self.is_proved &= self._options.is_guessed
        finally:
            # what each of them changed is undone, the last first
            while stack:
                stack.pop().close()
            self._account.give(size)

    def _look(self) -> None:
        now = self._clock()
        if now > self._level_ends_at:
            raise _LevelOver
        self._effort.look(self._ends_at - now)
        self._account.heavy = self._effort.heavy

    def _is_worse(self, memory: int) -> bool:
        return len(self.plans) >= self._bounds.plans and memory >= self.plans[-1].memory

    def _find_places(self, shape: int) -> Places:
        query = self._query if shape == REQUEST else self._holdings.shapes[shape]
        assert query is not None
        search = Search(
            query,
            self._empty,
            deadline=Deadline(self._level_ends_at - self._clock()),
            account=self._account,
            effort=self._effort,
        )
        takes = self._takes_request if shape == REQUEST else self._takes_moves
        return Places(
            search, takes, self._holdings.is_pool, self._state, self._rounds, self._largest
        )

    def _place(self, waiting: tuple[int, ...], most: int, memory: int) -> _Search:
        """Find places for all that wait, with so many more moves at most."""
        self._look()
        if self._is_worse(memory):
            return
        if not waiting:
            yield from self._finish(most, memory)
            return
        consumer, places, is_sure = self._hardest(waiting)
        at = waiting.index(consumer)
        rest = waiting[:at] + waiting[at + 1 :]
        if consumer == REQUEST and not self._options.is_ordered and places:
            # Which of them is taken is not tried: there would be too many ways.
            self._is_every_way_tried = False
            places, is_sure = places[:1], True
        for place in places[:1] if is_sure else places:
            with self._taken(consumer, place):
                yield self._place(rest, most, memory)
            if self._is_worse(memory):
                return
        if is_sure:
            return
        for options in self._options.lacking(consumer, most):
            for more, place, consumers in options:
                if self._is_worse(memory + more):
                    break
                if not consumers:
                    self._is_every_way_tried &= self._options.is_guessed
                    continue
                with self._evicted(consumers), self._taken(consumer, place):
                    yield self._place((*rest, *consumers), most - len(consumers), memory + more)
        if self._stuck is not None and not places:
            # It stays where it is.
            with self._state.changed(self._holdings.held(consumer), -1):
                self._stuck.append(consumer)
                yield self._place(rest, 0, memory - self._holdings.memory_of([consumer]))
                self._stuck.pop()

    def _hardest(self, waiting: tuple[int, ...]) -> tuple[int, list[Place], bool]:
        """Return who has the fewest places that lack nothing, these, and whether any will do.

        Where there are as many trees as wait, and nobody else uses them, each finds one.
        """
        fewest: tuple[int, list[Place], bool] | None = None
        counted = set[tuple[int, int]]()
        for consumer in waiting:
            key = self._options.shape(consumer), self._options.tree(consumer)
            if key in counted:
                continue
            counted.add(key)
            places, is_sure = self._options.fitting(consumer, len(waiting))
            if fewest is None or (is_sure, len(places)) < (fewest[2], len(fewest[1])):
                fewest = consumer, places, is_sure
            if not places:
                break
        assert fewest is not None
        return fewest

    def _finish(self, most: int, memory: int) -> _Search:
        """Keep the plan if there is an order of its moves, else let others move first."""
        moves = [
            Move(consumer, self._holdings.held(consumer), place)
            for consumer, place in self._options.taken
            if consumer != REQUEST
        ]
        if not self._bounds.swap:
            steps = find_order(moves, self._state.base, self._look)
            self.is_proved &= steps.is_whole
            if steps.order is None:
                # Others move out of the way of moves that block each other.
                for short in steps.blocked:
                    for size in range(1, most + 1):
                        for consumers in self._options.covers.of(dict(short), size):
                            more = self._holdings.memory_of(consumers)
                            with self._evicted(consumers):
                                yield self._place(consumers, most - size, memory + more)
                return
            moves = steps.order
        plan = Plan(
            tuple(self._settled(moves)),
            tuple(place for consumer, place in self._options.taken if consumer == REQUEST),
            memory,
            tuple(self._stuck or ()),
            self._stuck is None,
        )
        for variant in self._variants(plan):
            if all(variant.consumers != other.consumers for other in self.plans):
                self.plans.append(variant)
        self.plans.sort(key=lambda plan: plan.cost)
        del self.plans[self._bounds.plans :]

    def _variants(self, plan: Plan) -> Iterator[Plan]:
        """Yield a plan, and as many as are asked for with others who hold the same."""
        yield plan
        if self._bounds.plans == 1 or not plan.is_whole:
            return
        identities, is_movable = self._holdings.identities, self._holdings.tree >= 0
        movers: dict[int, list[int]] = {}
        for move in plan.moves:
            movers.setdefault(int(identities[move.consumer]), []).append(move.consumer)
        chosen = (
            islice(
                combinations(np.flatnonzero((identities == identity) & is_movable), len(alike)),
                self._bounds.plans,
            )
            for identity, alike in movers.items()
        )
        for others in islice(product(*chosen), self._bounds.plans):
            of = dict(zip(chain(*movers.values()), map(int, chain(*others)), strict=True))
            moves = tuple(move._replace(consumer=of[move.consumer]) for move in plan.moves)
            yield replace(plan, moves=moves)

    def _settled(self, moves: list[Move]) -> list[Move]:
        """Return the moves with places that break least, of those that are free at the end."""
        with ExitStack() as stack:
            for move in list(moves):
                stack.enter_context(self._state.changed(move.place.amounts, 1))
                places = islice(self._options.open_places(move.consumer), _JUDGED // len(moves))
                # the one that it has is taken where none is better
                place = min((move.place, *places), key=self._breakage.of)
                further = [move._replace(place=place) if m is move else m for m in moves]
                if not self._bounds.swap:
                    further = find_order(further, self._state.base, lambda: None).order or moves
                moves = further
                [place] = [m.place for m in moves if m.consumer == move.consumer]
                stack.enter_context(self._state.changed(place.amounts, -1))
        return moves

    @contextmanager
    def _taken(self, consumer: int, place: Place) -> Iterator[None]:
        """Give a place to a consumer, or to the request, within a block."""
        with self._state.changed(place.amounts, -1):
            self._options.taken.append((consumer, place))
            try:
                yield
            finally:
                self._options.taken.pop()

    @contextmanager
    def _evicted(self, consumers: Sequence[int]) -> Iterator[None]:
        """Let consumers leave within a block."""
        held = summed(entry for c in consumers for entry in self._holdings.held(c))
        with self._state.changed(held, 1):
            self._options.covers.out.update(consumers)
            try:
                yield
            finally:
                self._options.covers.out.difference_update(consumers)
