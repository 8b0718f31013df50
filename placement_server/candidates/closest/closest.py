"""The closest relaxations of a query that has no candidates, settled and counted; and their words.

The index knows neither the names of providers nor their consumers, so these are read from the
store, in one statement. What it shows may be newer than the index. A provider that has the room by
then, or is gone, is left out: what is reported was true at one moment.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from placement_server.candidates.closest.amounts import Amounts
from placement_server.candidates.closest.relaxations import (
    Relaxation,
    relaxations_of,
    with_relaxations,
)
from placement_server.candidates.closest.shortage import Shortage, find_shortages
from placement_server.candidates.closest.trials import Trials
from placement_server.candidates.errors import SearchGaveUp
from placement_server.candidates.index.index import Index
from placement_server.candidates.query.query import CandidateQuery
from placement_server.store.allocations.room import Room, RoomOfProvider

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


@dataclass(slots=True)
class ClosestRelaxations:
    """What would give a query candidates.

    :ivar sets: those of one relaxation, then of two; of each, first those that open most trees.
    :ivar shortages: the providers that lack nothing but amounts, the closest first.
    :ivar complete: whether everything was tried. What is listed is true in any case.
    """

    index: Index
    sets: list[RelaxationSet] = field(default_factory=list)
    shortages: list[Shortage] = field(default_factory=list)
    complete: bool = True
    _rooms: dict[str, RoomOfProvider] = field(default_factory=dict)

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
