"""Options of whoever waits for a place: those that lack nothing, and evictions for the others.

They are found for each shape when it is first asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from heapq import merge
from typing import Final

from placement_server.candidates.limits import Account
from placement_server.candidates.make_room.evictions import (
    Covers,
    EvictionList,
    Evictions,
    Option,
    by_memory,
)
from placement_server.candidates.make_room.holdings import Holdings
from placement_server.candidates.make_room.places import Place, Places, State

REQUEST: Final = -1
"""Stands for the request among the consumers that wait for a place, and for its shape."""


class Options:
    """The options of consumers, by their shapes, and of the request.

    :param find_places: of a shape.
    :param look: called now and then; may raise.
    :ivar covers: know who has left.
    :ivar taken: the places that were given, and to whom.
    :ivar is_ordered: whether the places of the request are taken in one order.
    :ivar is_guessed: whether to take only options that promise to need few moves: where one has to
        leave for another, as many as at the beginning.
    """

    def __init__(
        self,
        holdings: Holdings,
        state: State,
        find_places: Callable[[int], Places],
        look: Callable[[], None],
        account: Account,
    ) -> None:
        self._holdings, self._state, self._account = holdings, state, account
        self._find_places, self._look = find_places, look
        self._places: dict[int, Places] = {}
        self._evictions: dict[int, Evictions] = {}
        self._known_least: dict[tuple[int, int], int] = {}
        self._guesses: dict[tuple[int, int, int], list[EvictionList]] = {}
        self.covers = Covers(holdings, look, account)
        self.taken: list[tuple[int, Place]] = []
        self.is_ordered = True
        self.is_guessed = False

    @property
    def is_whole(self) -> bool:
        """Whether all placements were considered."""
        return all(places.is_whole for places in self._places.values())

    def shape(self, consumer: int) -> int:
        """Return the number of the shape of a consumer."""
        return REQUEST if consumer == REQUEST else self._holdings.shape(consumer)

    def tree(self, consumer: int) -> int:
        """Return the root of the tree that a consumer leaves, -1 of the request."""
        return -1 if consumer == REQUEST else int(self._holdings.tree[consumer])

    def _places_of(self, shape: int) -> Places:
        places = self._places.get(shape)
        if places is None:
            self._look()
            places = self._places[shape] = self._find_places(shape)
            self._evictions[shape] = Evictions(
                places, self.covers, self._state, self._look, self._account
            )
        return places

    def _of(self, consumer: int) -> Callable[[Place], bool]:
        """Return which places are open to a consumer, or to the request."""
        if consumer != REQUEST:
            tree = self.tree(consumer)
            return lambda place: place.root != tree
        after = [(place.root, place.placement) for who, place in self.taken if who == REQUEST]
        if not (self.is_ordered and after):
            return lambda _place: True
        return lambda place: (place.root, place.placement) >= after[-1]

    def fitting(self, consumer: int, count: int) -> tuple[list[Place], bool]:
        """Return the places that lack nothing, and whether there are enough.

        :param count: so many trees that nobody else uses are enough; then no more are listed.
        """
        places = self._places_of(self.shape(consumer))
        fitting_places, roots = list[Place](), set[int]()
        for place in self.open_places(consumer):
            fitting_places.append(place)
            if not places.is_scarce and place.root not in self._state.touched:
                roots.add(place.root)
                if len(roots) >= count:
                    return fitting_places, True
        return fitting_places, False

    def open_places(self, consumer: int) -> Iterator[Place]:
        """Return the places of a consumer, or of the request, that lack nothing now."""
        return filter(self._of(consumer), self._places_of(self.shape(consumer)).fitting())

    def lacking(self, consumer: int, most: int) -> Iterator[Iterator[Option]]:
        """Yield places that lack something, by how many leave, each time the least memory first.

        :param most: how many may move.
        """
        sizes = range(1, most + 1)
        for size in sizes[:1] if self.is_guessed and consumer != REQUEST else sizes:
            yield self._lacking(consumer, size, most - size)

    def _lacking(self, consumer: int, size: int, more: int) -> Iterator[Option]:
        """Yield places for which so many leave.

        :param more: how many others may move then.
        """
        is_open, shape = self._of(consumer), self.shape(consumer)
        places, evictions = self._places_of(shape), self._evictions[shape]
        touched: Collection[int] = ()
        if places.is_scarce:
            lists = list(evictions.of(size).values())
        else:
            touched = tuple(self._state.touched)
            lists = self._promising(shape, size, more)
        own = self.tree(consumer)
        now = [o for root in touched if root != own for o in evictions.in_tree(root, size)]
        at_first = (
            (memory, place, consumers)
            for memory, spot, consumers in merge(*lists, key=by_memory)
            if (place := places.place(spot)).root not in touched
        )
        for option in merge(at_first, sorted(now, key=by_memory), key=by_memory):
            _memory, place, consumers = option
            if not consumers or is_open(place):
                yield option

    def _promising(self, shape: int, size: int, more: int) -> list[EvictionList]:
        """Return the evictions whose consumers may find places with so many more moves."""
        key = shape, size, more
        if self.is_guessed and key in self._guesses:
            return self._guesses[key]
        by_shapes = self._evictions[shape].of(size)
        shapes = set().union(*by_shapes)
        needs: dict[int, int] = {}
        if self.is_guessed:
            needs = {s: self._least(s, more) for s in shapes}
        elif not more:
            # Each of them has to find a place that lacks nothing.
            options = {s: self._places_of(s) for s in shapes}
            needs = {
                s: not places.is_scarce and next(places.fitting(), None) is None
                for s, places in options.items()
            }
        lists = [
            evictions
            for leaving, evictions in by_shapes.items()
            if sum(needs.get(s, 0) for s in leaving) <= more
        ]
        if self.is_guessed:
            self._guesses[key] = lists
        return lists

    def _least(self, shape: int, most: int) -> int:
        """Return how many have to leave one after the other, more than some if none will do.

        As at the beginning: once something is touched it is a guess.
        """
        least = self._known_least.get((shape, most))
        if least is None:
            least = 0
            places = self._places_of(shape)
            if not places.is_scarce and not places.fitting_at_first:
                least = most + 1
                shapes = set().union(*self._evictions[shape].of(1)) if most else ()
                for other in shapes:
                    least = min(least, 1 + self._least(other, most - 1))
            self._known_least[shape, most] = least
        return least
