"""Largest amounts that fit, lower than those asked for.

An inventory gives multiples of its step_size from its min_unit on. Where an amount fits into such
inventories, every smaller one that they give does. So bisection among the amounts that inventories
with the same two give ends at the largest that fits into these, or at a larger one that fits into
others. The largest of all is found by doing so for each two.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from placement_server.candidates.closest.changes import QueryChange, with_changes
from placement_server.candidates.closest.trials import Trials
from placement_server.candidates.index.arrays import UNIT_MAX
from placement_server.candidates.index.class_columns import ClassView
from placement_server.candidates.query.query import CandidateQuery

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
    """The amounts to which changes may lower what is asked for."""

    def __init__(self, trials: Trials) -> None:
        self._trials = trials
        self._index = trials.index
        self._units: dict[str, list[Units]] = {}

    def _view(self, change: QueryChange) -> ClassView | None:
        return self._index.classes.get(self._index.names.class_ids[change.condition])

    def units(self, change: QueryChange) -> list[Units]:
        """List the units of the living inventories of a class that give less than is asked for."""
        name = change.condition
        if name not in self._units:
            view = self._view(change)
            self._units[name] = [] if view is None else self._units_of(view)
        return [units for units in self._units[name] if units.lowest < change.requested_amount]

    def _units_of(self, view: ClassView) -> list[Units]:
        if view.largest_min_unit == view.largest_step_size == 1:
            return [Units(1, 1)]
        alive = np.zeros(self._index.size, dtype=bool)
        alive[self._index.roots] = True
        is_living = alive[self._index.root[view.slot]]
        pairs = np.stack((view.min_unit[is_living], view.step_size[is_living]), axis=1)
        return [Units(*pair) for pair in np.unique(pairs, axis=0).tolist()]

    def are_uniform(self, change: QueryChange) -> bool:
        """Check whether every inventory that may give what is asked for gives the lowest amount."""
        self.units(change)
        lowest = {units.lowest for units in self._units[change.condition]}
        return sum(1 for amount in lowest if amount <= change.requested_amount) < 2

    def enough(self, query: CandidateQuery, changes: Sequence[QueryChange]) -> bool:
        """Check whether a query has a candidate with some changes, to whatever amounts."""
        lowered_changes = [change for change in changes if change.requested_amount]
        changed_query = with_changes(
            query, [change for change in changes if not change.requested_amount]
        )
        lowest = [{units.lowest for units in self.units(change)} for change in lowered_changes]
        return any(
            self._trials.works(
                with_changes(
                    changed_query, lowered_changes, dict(zip(lowered_changes, to, strict=True))
                )
            )
            for to in product(*lowest)
        )

    def settle(
        self, query: CandidateQuery, changes: Sequence[QueryChange]
    ) -> dict[QueryChange, int]:
        """Return the largest amounts with which changes that are enough still are.

        Of two amounts the same share is kept as far as that goes; then each is as large as the
        other one lets it be.
        """
        lowered_changes = [change for change in changes if change.requested_amount]
        changed_query = with_changes(
            query, [change for change in changes if not change.requested_amount]
        )
        amounts = dict.fromkeys(lowered_changes, 0)
        if len(lowered_changes) > 1:
            amounts = self._in_proportion(changed_query, lowered_changes)
        before: dict[QueryChange, int] | None = None
        while amounts != before:
            before = dict(amounts)
            for change in lowered_changes:
                others = [other for other in lowered_changes if other != change]
                amounts[change] = self._largest(
                    with_changes(changed_query, others, amounts), change, amounts[change]
                )
            # A larger second amount leaves no more to the first, unless it is of other units.
            if len(lowered_changes) < 2 or all(
                len(self.units(change)) == 1 for change in lowered_changes
            ):
                break
        return amounts

    def _in_proportion(
        self, query: CandidateQuery, lowered_changes: Sequence[QueryChange]
    ) -> dict[QueryChange, int]:
        best: dict[QueryChange, int] = {}
        share = -1.0
        for choice in product(*map(self.units, lowered_changes)):

            def at(step: int, choice: Iterable[Units] = choice) -> dict[QueryChange, int]:
                return {
                    change: units.at_most(change.requested_amount * step // _STEPS)
                    for change, units in zip(lowered_changes, choice, strict=True)
                }

            def fails(step: int) -> bool:
                return not self._trials.works(with_changes(query, lowered_changes, at(step)))

            step = bisect_left(range(_STEPS), True, key=fails) - 1
            if step >= 0:
                amounts = at(step)
                smallest = min(to / change.requested_amount for change, to in amounts.items())
                if smallest > share:
                    best, share = amounts, smallest
        return best

    def _largest(self, query: CandidateQuery, change: QueryChange, least: int) -> int:
        """Return the largest amount below that asked for with which a query has a candidate.

        :param least: an amount with which it has one, 0 when none is known.
        """
        for units in self.units(change):
            values = self._values(query, change, units)
            values = values[bisect_left(values, least + 1) :]

            def fails(amount: int) -> bool:
                return not self._trials.works(with_changes(query, [change], {change: amount}))

            if values and not fails(values[-1]):
                least = values[-1]
            elif values:
                place = bisect_left(values, True, hi=len(values) - 1, key=fails)
                least = values[place - 1] if place else least
        return least

    def _values(self, query: CandidateQuery, change: QueryChange, units: Units) -> Sequence[int]:
        """Return the amounts, ascending, among which the largest that fits is."""
        view = self._view(change)
        assert view is not None
        item = _item(query, change)
        lowest = units.lowest
        at_lowest = with_changes(query, [change], {change: lowest})
        with self._trials.search(at_lowest, 1) as search:
            eligible = search.eligible
            if not len(eligible.roots):
                return ()
            inside = np.zeros(self._index.size, dtype=bool)
            inside[eligible.roots] = True
            usable = eligible.own[item] & inside[self._index.root] | eligible.foreign[item]
            # More may be asked for than any inventory has, and than fits into an array.
            fit = np.minimum(
                view.fit[usable[view.slot]], min(change.requested_amount - 1, UNIT_MAX)
            )
            largest = np.unique(fit // units.step_size) * units.step_size
            class_id = self._index.names.class_ids[change.condition]
            is_contested = any(
                contest.class_id == class_id and item in contest.wants
                for contest in search.plan.contested_classes
            )
        if not len(largest):
            return ()
        if is_contested:
            # What is left by the other items that take from the same inventory may be any amount.
            return range(lowest, int(largest[-1]) + 1, units.step_size)
        values: list[int] = largest.tolist()
        return values


def _item(query: CandidateQuery, change: QueryChange) -> int:
    """Return the number of the item that the amount of a change belongs to."""
    item = 0
    for group in query.groups:
        if group.suffix == change.group:
            names = [name for name, _amount in group.resources]
            return item if group.suffix else item + names.index(change.condition)
        item += 1 if group.suffix else len(group.resources)
    raise AssertionError(f"the query has no group {change.group!r}")
