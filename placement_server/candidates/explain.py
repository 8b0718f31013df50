"""Explanation of why a query has few candidates or none: a reporter that keeps count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from placement_server.candidates.closest.closest import ClosestRelaxations, find_closest
from placement_server.candidates.closest.relaxations import Trials
from placement_server.candidates.index.arrays import IntArray, SlotArray
from placement_server.candidates.index.index import Index
from placement_server.candidates.query.query import CandidateQuery
from placement_server.candidates.search.reporter import Reporter


@dataclass(slots=True)
class Explanation(Reporter):
    """The course of one search in numbers.

    :ivar steps: the filters in the order in which they were applied, as an answer shows them: the
        suffix of the `group`, None for what is asked of roots; the `filter` that was asked for,
        such as `resources VCPU:4` or `member_of`; `providers_left`, how many pass it and
        those of the group before it, or `trees_rejected`, how many trees lost their last way to
        serve the group.
    :ivar trees: how many trees there are.
    :ivar trees_tried: how many of them passed all filters.
    :ivar trees_with_candidates: how many of these have a candidate.
    :ivar combinations_failed: the trees among these in which no combination works, by reason.
    :ivar examples: the root of one such tree, by reason.
    :ivar dead_ends: how often no provider was left for a group, by its suffix.
    :ivar closest: the closest changes of the query, if they were asked for and it has no candidate.
    """

    index: Index
    query: CandidateQuery
    steps: list[dict[str, Any]] = field(default_factory=list)
    trees_tried: int = 0
    trees_with_candidates: int = 0
    combinations_failed: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    dead_ends: Counter[str] = field(default_factory=Counter)
    closest: ClosestRelaxations | None = None

    wants = True

    @property
    def trees(self) -> int:
        """The number of trees."""
        return len(self.index.roots)

    def providers_left(self, group: str, reason: str, slots: SlotArray | IntArray) -> None:
        """Count the living providers among the slots."""
        is_living = np.isin(self.index.root[slots], self.index.roots)
        self._add_step(group, reason, providers_left=int(is_living.sum()))

    def roots_rejected(self, group: str, reason: str, roots: IntArray | Sequence[int]) -> None:
        """Count the trees."""
        if len(roots):
            self._add_step(group, reason, trees_rejected=len(roots))

    def _add_step(self, group: str, reason: str, **count: int) -> None:
        # A group may have the suffix "root" as well.
        of_roots = group == "root" and reason.startswith("root_")
        self.steps.append({"group": None if of_roots else group, "filter": reason, **count})

    def tree_rejected(self, root: int, reason: str) -> None:
        """Count the tree under its reason, and keep the first as an example."""
        self.trees_tried += 1
        self.combinations_failed[reason] += 1
        self.examples.setdefault(reason, self.index.columns.uuid[root])

    def candidate(self) -> None:
        """Count the tree."""
        self.trees_tried += 1

    def dead_end(self, group: int) -> None:
        """Count it for the group."""
        self.dead_ends[self.query.groups[group].suffix] += 1

    def lines(self) -> list[str]:
        """Return the explanation as sentences."""
        lines = [f"{self.trees} tree(s) of providers."]
        for step in self.steps:
            group, rejected_count = step["group"], step.get("trees_rejected")
            of_group = " of the root" if group is None else group and f" of group {group}"
            what = f"rejects {rejected_count} tree(s)"
            if rejected_count is None:
                what = f"leaves {step['providers_left']} provider(s)"
            lines.append(f"{step['filter']}{of_group}: {what}.")
        lines.append(f"{self.trees_tried} tree(s) passed all filters.")
        lines += [
            f"{count} of them have no combination ({reason}), for example {self.examples[reason]}."
            for reason, count in self.combinations_failed.most_common()
        ]
        return lines


def explain(query: CandidateQuery, trials: Trials, sets: int = 0) -> Explanation:
    """Search every tree for a first candidate, and report why others have none.

    :param sets: how many sets of changes to look for, where there is no candidate.
    :raises placement_server.candidates.errors.SearchGaveUp: the time is over.
    :raises placement_server.candidates.errors.QueryError: a class or trait does not exist.
    """
    explanation = Explanation(trials.index, query)
    with trials.roots(query, reporter=explanation) as roots:
        explanation.trees_with_candidates = sum(1 for _root in roots)
    if sets and not explanation.trees_with_candidates:
        explanation.closest = find_closest(query, trials, sets)
    return explanation
