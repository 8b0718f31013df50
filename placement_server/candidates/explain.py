"""Explanation of why a query has few candidates or none."""

from __future__ import annotations

from placement_server.candidates.closest.closest import ClosestRelaxations, find_closest
from placement_server.candidates.closest.relaxations import Trials
from placement_server.candidates.query.query import CandidateQuery
from placement_server.candidates.search.course import Course


class Explanation(Course):
    """The course of one search in numbers, and what would give the query candidates.

    :ivar trees_with_candidates: how many of the trees that were tried have a candidate.
    :ivar closest: the closest changes of the query, if they were asked for and it has no candidate.
    """

    trees_with_candidates: int = 0
    closest: ClosestRelaxations | None = None

    @property
    def trees(self) -> int:
        """The number of trees."""
        return len(self.index.roots)

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
    with trials.roots(query, course=explanation) as roots:
        explanation.trees_with_candidates = sum(1 for _root in roots)
    if sets and not explanation.trees_with_candidates:
        explanation.closest = find_closest(query, trials, sets)
    return explanation
