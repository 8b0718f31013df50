"""The closest changes of a query that has no candidates, settled and counted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from placement_server.candidates.closest.amounts import Amounts
from placement_server.candidates.closest.changes import QueryChange, changes_of, with_changes
from placement_server.candidates.closest.conflicts import SmallestSets
from placement_server.candidates.closest.shortage import Shortage, find_shortages
from placement_server.candidates.closest.trials import Trials
from placement_server.candidates.errors import SearchGaveUp
from placement_server.candidates.query.query import CandidateQuery

SETS = 5
"""Sets of changes that are reported unless the client asks for another number."""
PROVIDERS = 10
"""Providers that are reported as short of something, at most."""


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """Changes with which a query has candidates, and with fewer of them it has none.

    :param changes: each with the amount that is asked for instead, 0 where it is about no amount.
    :param trees: how many trees have candidates then.
    :param example: the slot of the root of one of them.
    """

    changes: tuple[tuple[QueryChange, int], ...]
    trees: int
    example: int


@dataclass(slots=True)
class Closest:
    """What would give a query candidates.

    :ivar sets: those of one change, then those of two; of each, first those that open most trees.
    :ivar shortages: the providers that lack nothing but amounts, the closest first.
    :ivar complete: whether everything was tried. What is listed is true in any case.
    """

    sets: list[ChangeSet] = field(default_factory=list)
    shortages: list[Shortage] = field(default_factory=list)
    complete: bool = True


def find_closest(query: CandidateQuery, trials: Trials, most: int) -> Closest:
    """Find the closest changes of a query that has no candidate.

    :param most: how many sets at most.
    """
    closest = Closest()
    try:
        for change_set in _sets(query, trials, most):
            closest.sets.append(change_set)
    except SearchGaveUp:
        closest.complete = False
    try:
        closest.shortages = find_shortages(query, trials.index, trials.account, PROVIDERS)
    except SearchGaveUp:
        closest.complete = False
    closest.sets.sort(key=lambda change_set: (len(change_set.changes), -change_set.trees))
    del closest.sets[most:]
    return closest


def _sets(query: CandidateQuery, trials: Trials, most: int) -> Iterator[ChangeSet]:
    amounts = Amounts(trials)
    changes = [
        change
        for change in changes_of(query)
        if not change.requested_amount or amounts.units(change)
    ]
    smallest = SmallestSets(
        changes,
        lambda some: amounts.enough(query, some),
        monotone=all(amounts.are_uniform(change) for change in changes if change.requested_amount),
    )

    def change_set(*some: QueryChange) -> ChangeSet:
        to = amounts.settle(query, some)
        opening = trials.count_opened(with_changes(query, some, to))
        changed_set = tuple((change, to.get(change, 0)) for change in some)
        return ChangeSet(changed_set, opening.trees, opening.example)

    of_one: list[QueryChange] = []
    for change in smallest.of_one():
        of_one.append(change)
        yield change_set(change)
    if len(of_one) < most:
        for pair in smallest.of_two(of_one):
            yield change_set(*pair)
