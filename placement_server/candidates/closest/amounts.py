"""Largest amounts that fit, lower than those asked for.

An inventory gives multiples of its step_size from its min_unit on. Where an amount fits into such
inventories, every smaller one that they give does. So bisection among the amounts that inventories
with the same two give ends at the largest that fits into these, or at a larger one that fits into
others. The largest of all is found by doing so for each two.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from placement_server.candidates.closest.relaxations import Relaxation, with_relaxations
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
        return self._trials.works(with_relaxations(query, amounts))

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
    """Return a query without the conditions that are left out, and the relaxations of amounts."""
    lowered_relaxations = [relaxation for relaxation in relaxations if relaxation.requested_amount]
    others = {relaxation: 0 for relaxation in relaxations if not relaxation.requested_amount}
    return with_relaxations(query, others), lowered_relaxations
