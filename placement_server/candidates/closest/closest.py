"""The closest relaxations of a query that has no candidates, settled and counted; and their words.

An inventory gives multiples of its step_size from its min_unit on. Where an amount fits into such
inventories, every smaller one that they give does. So bisection among the amounts that inventories
with the same two give ends at the largest that fits into these, or at a larger one that fits into
others. The largest of all is found by doing so for each two.

The index knows neither the names of providers nor their consumers, so these are read from the
store, in one statement. What it shows may be newer than the index. A provider that has the room by
then, or is gone, is left out: what is reported was true at one moment.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterator, Sequence, Set
from itertools import product
from typing import Final, NamedTuple, TypeVar

import numpy as np
from msgspec import Struct

from placement_server.candidates.closest.relaxations import (
    Relaxation,
    Trials,
    relaxations_of,
    with_relaxations,
)
from placement_server.candidates.closest.shortage import Shortage, find_shortages
from placement_server.candidates.errors import SearchGaveUp
from placement_server.candidates.index.arrays import UNIT_MAX
from placement_server.candidates.index.class_columns import ClassView
from placement_server.candidates.index.index import Index
from placement_server.candidates.query.query import CandidateQuery
from placement_server.store.allocations.room import Room, RoomOfProvider

# In how many steps two amounts are lowered in proportion, before each is raised on its own.
_STEPS = 64


class Units(NamedTuple):
    """What inventories of one class give at a time."""

    min_unit: int
    step_size: int

    @property
    def lowest(self) -> int:
        """The smallest amount that they give."""
        return -(-self.min_unit // self.step_size) * self.step_size

    def at_most(self, amount: int) -> int:
        """Return the largest amount up to this one, the lowest where there is none."""
        return max(amount // self.step_size * self.step_size, self.lowest)


class Amounts:
    """The amounts to which relaxations may lower what is asked for."""

    def __init__(self, trials: Trials) -> None:
        self._trials = trials
        self._index = trials.index
        self._units: dict[str, list[Units]] = {}

    def units(self, relaxation: Relaxation) -> list[Units]:
        """List the units of the living inventories of a class that give less than is asked for."""
        name = relaxation.condition
        if name not in self._units:
            view = self._index.classes.get(self._index.names.class_ids[name])
            self._units[name] = [] if view is None else self._units_of(view)
        return [units for units in self._units[name] if units.lowest < relaxation.requested_amount]

    def _units_of(self, view: ClassView) -> list[Units]:
        if view.largest_min_unit == view.largest_step_size == 1:
            return [Units(1, 1)]
        is_living = self._index.columns.living_mask(self._index.roots)[view.slot]
        pairs = np.stack((view.min_unit[is_living], view.step_size[is_living]), axis=1)
        return [Units(*pair) for pair in np.unique(pairs, axis=0).tolist()]

    def enough(self, query: CandidateQuery, relaxations: Sequence[Relaxation]) -> bool:
        """Check whether a query has a candidate with some relaxations, to whatever amounts."""
        changed_query, lowered_relaxations = _of_amounts(query, relaxations)
        return any(
            self._works(changed_query, dict(zip(lowered_relaxations, to, strict=True)))
            for to in product(*map(self._least, lowered_relaxations))
        )

    def _least(self, relaxation: Relaxation) -> set[int]:
        """Return the least amounts that inventories give.

        Where they differ, what is asked for may still fit when less does not.
        """
        asked_amount, every = relaxation.requested_amount, self._units[relaxation.condition]
        lowest = {units.lowest for units in every if units.lowest <= asked_amount}
        return lowest if len(lowest) == 1 else {*lowest, asked_amount}

    def settle(
        self, query: CandidateQuery, relaxations: Sequence[Relaxation]
    ) -> dict[Relaxation, int]:
        """Return the largest amounts with which relaxations that are enough still are.

        Of two amounts the same share is kept as far as that goes; then each is as large as the
        other one lets it be.
        """
        changed_query, lowered_relaxations = _of_amounts(query, relaxations)
        amounts = dict.fromkeys(lowered_relaxations, 0)
        if len(lowered_relaxations) > 1:
            amounts = self._in_proportion(changed_query, lowered_relaxations)
        before: dict[Relaxation, int] | None = None
        while amounts != before:
            before = dict(amounts)
            for relaxation in lowered_relaxations:
                amounts[relaxation] = self._largest(changed_query, relaxation, amounts)
            # A larger second amount leaves no more to the first, unless it is of other units.
            if len(amounts) < 2 or all(len(self.units(relaxation)) == 1 for relaxation in amounts):
                break
        return amounts

    def _works(self, query: CandidateQuery, amounts: dict[Relaxation, int]) -> bool:
        return self._trials.opening(with_relaxations(query, amounts), 1)[0] > 0

    def _in_proportion(
        self, query: CandidateQuery, lowered_relaxations: Sequence[Relaxation]
    ) -> dict[Relaxation, int]:
        fitting_amounts: list[dict[Relaxation, int]] = []
        for choice in product(*map(self.units, lowered_relaxations)):
            steps = [
                {
                    relaxation: units.at_most(relaxation.requested_amount * step // _STEPS)
                    for relaxation, units in zip(lowered_relaxations, choice, strict=True)
                }
                for step in range(_STEPS)
            ]
            place = bisect_left(steps, True, key=lambda to: not self._works(query, to))
            fitting_amounts += steps[max(place - 1, 0) : place]
        return max(
            fitting_amounts,
            key=lambda amounts: min(
                to / relaxation.requested_amount for relaxation, to in amounts.items()
            ),
        )

    def _largest(
        self, query: CandidateQuery, relaxation: Relaxation, amounts: dict[Relaxation, int]
    ) -> int:
        """Return the largest amount below that asked for with which a query has a candidate.

        :param amounts: of all relaxations; with these it has one, unless that of this one is 0.
        """
        least = amounts[relaxation]

        def fails(amount: int) -> bool:
            return not self._works(query, {**amounts, relaxation: amount})

        for units in self.units(relaxation):
            values = self._values(query, relaxation, units)
            values = values[bisect_left(values, least + 1) :]
            place = len(values)
            if values and fails(values[-1]):
                place = bisect_left(values, True, hi=place - 1, key=fails)
            least = values[place - 1] if place else least
        return least

    def _values(self, query: CandidateQuery, relaxation: Relaxation, units: Units) -> Sequence[int]:
        """Return the amounts, ascending, among which the largest that fits is."""
        view = self._index.classes[self._index.names.class_ids[relaxation.condition]]
        # More may be asked for than any inventory has, and than fits into an array.
        fit = np.minimum(view.fit, min(relaxation.requested_amount - 1, UNIT_MAX))
        values: list[int] = (np.unique(fit // units.step_size) * units.step_size).tolist()
        values = values[bisect_left(values, units.lowest) :]
        names = [name for group in query.groups for name, _amount in group.resources]
        if values and names.count(relaxation.condition) > 1:
            # What is left by the other groups that take from the same inventory may be any amount.
            return range(units.lowest, values[-1] + 1, units.step_size)
        return values


def _of_amounts(
    query: CandidateQuery, relaxations: Sequence[Relaxation]
) -> tuple[CandidateQuery, list[Relaxation]]:
    """Return a query without what is left out or lowered, and the relaxations of amounts."""
    lowered_relaxations = [relaxation for relaxation in relaxations if relaxation.requested_amount]
    return with_relaxations(query, dict.fromkeys(relaxations, 0)), lowered_relaxations


SETS = 5
"""Sets of relaxations that are reported unless the client asks for another number."""
PROVIDERS = 10
"""Providers that are reported as short of something, at most."""
_SENTENCES: Final = 10
"""Sets of relaxations that get a sentence: more are not read by a person."""

ReadRoom = Callable[[Set[int], Set[int]], dict[str, RoomOfProvider]]


class RelaxationSet(NamedTuple):
    """Relaxations with which a query has candidates, and with fewer of them it has none.

    :ivar relaxations: each with the amount that is asked for instead, 0 where it has none.
    :ivar trees: how many trees have candidates then.
    :ivar example: the slot of the root of one of them.
    """

    relaxations: tuple[tuple[Relaxation, int], ...]
    trees: int
    example: int


class ClosestRelaxations(Struct):
    """What would give a query candidates.

    :ivar sets: those of one relaxation, then of two; of each, first those that open most trees.
    :ivar shortages: the providers that lack nothing but amounts, the closest first.
    :ivar complete: whether everything was tried. What is listed is true in any case.
    """

    index: Index
    sets: list[RelaxationSet] = []
    shortages: list[Shortage] = []
    complete: bool = True
    _rooms: dict[str, RoomOfProvider] = {}

    def uuid(self, slot: int) -> str:
        """Return the uuid of a provider."""
        return self.index.columns.uuid[slot]

    def name(self, slot: int) -> str:
        """Return the name of a provider, or its uuid where the name is not known."""
        uuid = self.uuid(slot)
        return self._rooms[uuid].name if uuid in self._rooms else uuid

    def read_rooms(self, read_room: ReadRoom) -> None:
        """Read the names and the room of the providers.

        :param read_room: of providers by their ids, of classes by their ids.
        """
        ids, class_ids = self.index.columns.provider_id.view(), self.index.names.class_ids
        slots = {shortage.slot for shortage in self.shortages}
        slots |= {relaxation_set.example for relaxation_set in self.sets[:_SENTENCES]}
        wanted_classes = {class_ids[shortage.resource_class] for shortage in self.shortages}
        if slots:
            self._rooms = read_room({int(ids[slot]) for slot in slots}, wanted_classes)

    def short(self) -> Iterator[tuple[Shortage, Room]]:
        """Yield the providers that are short still, each with what it has of the class."""
        class_ids = self.index.names.class_ids
        for shortage in self.shortages:
            provider = self._rooms.get(self.uuid(shortage.slot))
            room = provider and provider.by_class.get(class_ids[shortage.resource_class])
            if room and not room.fits(shortage.requested_amount):
                yield shortage, room

    def lines(self) -> Iterator[str]:
        """Yield all of it as sentences, first one for each set."""
        if not self.sets and self.complete:
            yield "No tree would fit with one or two changes of the request."
        for relaxation_set in self.sets[:_SENTENCES]:
            relaxations = " and ".join(
                relaxation.words(to) for relaxation, to in relaxation_set.relaxations
            )
            name, trees = self.name(relaxation_set.example), relaxation_set.trees
            example = f": {name}" if trees == 1 else f", for example {name}"
            yield f"{trees} tree{'s' * (trees != 1)} would fit {relaxations}{example}."
        if not self.complete:
            yield (
                "Not every change was tried: the time of a search, its memory or the places of "
                "heavy searches were used up."
            )
        for shortage, room in self.short():
            yield f"{self.name(shortage.slot)} {shortage.words(room)}."


def find_closest(query: CandidateQuery, trials: Trials, most: int) -> ClosestRelaxations:
    """Find the closest relaxations of a query that has no candidate.

    :param most: how many sets at most.
    """
    closest, amounts = ClosestRelaxations(trials.index), Amounts(trials)
    relaxations = [c for c in relaxations_of(query) if not c.requested_amount or amounts.units(c)]
    try:
        for some in smallest_sets(relaxations, lambda some: amounts.enough(query, some), most):
            to = dict.fromkeys(some, 0) | amounts.settle(query, some)
            opening = trials.opening(with_relaxations(query, to))
            closest.sets.append(RelaxationSet(tuple(to.items()), *opening))
    except SearchGaveUp:
        closest.complete = False
    try:
        closest.shortages = find_shortages(query, trials.index, trials.account, PROVIDERS)
    except SearchGaveUp:
        closest.complete = False
    closest.sets.sort(
        key=lambda relaxation_set: (len(relaxation_set.relaxations), -relaxation_set.trees)
    )
    del closest.sets[most:]
    return closest


C = TypeVar("C", bound=Hashable)
Enough = Callable[[Sequence[C]], bool]


def smallest_sets(
    relaxations: Sequence[C], enough: Enough[C], most: int
) -> Iterator[tuple[C, ...]]:
    """Yield the relaxations of which one alone is enough, then the pairs without such.

    :param enough: whether some are enough. None are not, and those that are stay so with further
        ones.
    :param most: when as many alone are enough, no pairs follow.
    """
    single_relaxations = []
    for relaxation in _conflict([], relaxations, enough):
        if enough([relaxation]):
            single_relaxations.append(relaxation)
            yield (relaxation,)
    others = [relaxation for relaxation in relaxations if relaxation not in single_relaxations]
    tried_pairs: set[tuple[C, ...]] = set()
    for first in _conflict([], others, enough) if len(single_relaxations) < most else ():
        rest = [relaxation for relaxation in others if relaxation != first]
        for second in _conflict([first], rest, enough):
            pair = tuple(sorted((first, second), key=others.index))
            if pair not in tried_pairs and enough(pair):
                yield pair
            tried_pairs.add(pair)


def _conflict(made_relaxations: list[C], others: Sequence[C], enough: Enough[C]) -> Sequence[C]:
    """Return a conflict among others of the relaxations that were made, which are not enough.

    Empty when all of them are not enough either.
    """

    def narrow(kept_relaxations: list[C], among: Sequence[C], *, is_new: bool) -> list[C]:
        """Return the least of some relaxations that is a conflict with those kept: QuickXplain.

        :param is_new: whether more is kept than when that was last tried.
        """
        if is_new and not enough(
            [
                *made_relaxations,
                *(relaxation for relaxation in others if relaxation not in kept_relaxations),
            ]
        ):
            return []
        if len(among) == 1:
            return list(among)
        first, second = among[: len(among) // 2], among[len(among) // 2 :]
        of_second = narrow([*kept_relaxations, *first], second, is_new=True)
        return [*narrow([*kept_relaxations, *of_second], first, is_new=bool(of_second)), *of_second]

    if not others or not enough([*made_relaxations, *others]):
        return []
    return narrow([], others, is_new=False)
