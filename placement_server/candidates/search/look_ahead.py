"""Bounds that refuse a whole tree, and then a branch of the search, before more is tried in it.

Contradictions of a tree are found before any item is placed. Each is a bound that is cheap to
compute: the eligible providers of each item, the subtrees that can still have a top, the capacity
of the eligible providers in sum, and a matching of isolated items to distinct providers (the
condition of Hall).

A look ahead foresees one rule from a step of the search on: the required terms that are still to
be met, distinct providers for isolated items, a top for each same_subtree, room for symmetric
items, and one of the positions of which at least one must take part. What the later items take
from each other is not foreseen.
"""

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter

from msgspec.structs import replace

from placement_server.candidates.query.query import Plan
from placement_server.candidates.search.problem import ItemOrder, Problem, bits


def can_match(needs: Mapping[int, int]) -> bool:
    """Check whether every need can have positions of its own.

    :param needs: how many distinct positions are needed from each set of positions (one bit per
        position). Positions given to one need are not available to another.

    Equal needs are handled together: along an augmenting path a need that has no free position
    takes one from another need, which takes one from a third, and so on to one that has a free
    position.
    """
    sets = list(needs)
    matched_positions = [0] * len(sets)
    free = 0
    for positions in sets:
        free |= positions
    for number, positions in enumerate(sets):
        for _ in range(needs[positions]):
            free = _augment(sets, matched_positions, free, number)
            if free < 0:
                return False
    return True


def _augment(sets: list[int], matched_positions: list[int], free: int, start: int) -> int:
    """Give one more position to a need; return what is free then, -1 when there is no way."""
    taken_from: dict[int, tuple[int, int]] = {}
    queue = [start]
    for number in queue:
        available = sets[number] & free
        if available:
            gained_position = available & -available
            free ^= gained_position
            while number != start:
                asker, released_position = taken_from[number]
                matched_positions[number] = (
                    matched_positions[number] | gained_position
                ) ^ released_position
                number, gained_position = asker, released_position
            matched_positions[start] |= gained_position
            return free
        for other, positions in enumerate(matched_positions):
            stealable = sets[number] & positions
            if stealable and other != start and other not in taken_from:
                taken_from[other] = (number, stealable & -stealable)
                queue.append(other)
    return -1


def find_contradiction(plan: Plan, problem: Problem) -> str:
    """Return why no placement can exist, "" when one may."""
    if not all(problem.eligible):
        return "no provider for some group"
    eligible = narrow_to_subtrees(plan, problem).eligible
    if not all(eligible):
        return "same_subtree"
    for caps, contest in zip(problem.caps, plan.contested_classes, strict=True):
        reach = 0
        for item in contest.wants:
            reach |= eligible[item]
        if sum(caps[position] for position in bits(reach)) < contest.total:
            return "capacity in sum"
    if not have_distinct_providers(plan, eligible, range(len(plan.items))):
        return "too few distinct providers"
    return ""


_is_named = attrgetter("is_named")
_apart = attrgetter("apart")


def is_trivial(plan: Plan, problem: Problem) -> bool:
    """Check whether one provider serves everything, where there is no contradiction.

    The bounds are exact where it is the only one, but for items that are named or kept apart.
    """
    return (
        len(problem.ancestors) == 1
        and problem.covers[0] == problem.terms
        and not problem.linked_sets
        and not any(map(_is_named, plan.items))
        and not any(map(_apart, plan.subtrees))
    )


def narrow_to_subtrees(plan: Plan, problem: Problem) -> Problem:
    """Drop the eligible positions that lie below no possible top of a same_subtree."""
    if not plan.subtrees:
        return problem
    eligible = list(problem.eligible)
    for subtree in plan.subtrees:
        tops = 0
        for item in subtree.together:
            tops |= eligible[item]
        reach = 0
        for top in bits(tops):
            below = problem.descendants[top]
            if all(eligible[item] & below for item in subtree.together):
                reach |= below
        for item in subtree.together:
            eligible[item] &= reach
    return replace(problem, eligible=tuple(eligible))


def have_distinct_providers(
    plan: Plan,
    eligible: Sequence[int],
    items: Iterable[int],
    used_mask: int = 0,
    named_count: int = 0,
) -> bool:
    """Check that the isolated ones among some items can each have a provider of its own.

    :param used_mask: the positions taken already, which no named item may take.
    :param named_count: those of them that no other item may take.
    """
    needs: dict[int, int] = {}
    for number in items:
        item = plan.items[number]
        if item.is_exclusive:
            free = eligible[number] & ~(used_mask if item.is_named else named_count)
            needs[free] = needs.get(free, 0) + 1
    if not needs or (len(needs) == 1 and all(m.bit_count() >= n for m, n in needs.items())):
        return True
    return can_match(needs)


class LookAhead:
    """The bounds of one problem, for items in the order in which they are placed.

    :ivar can_be_hopeless: whether `is_hopeless` is worth a call, which many steps would make.
    :ivar subtrees_of: by item, the numbers of the same_subtree rules that it is bound by.
    :ivar coming_tops: by step and same_subtree, the positions that the items from this step on may
        take.
    """

    def __init__(self, plan: Plan, problem: Problem, order: ItemOrder) -> None:
        self.plan = plan
        self.problem = problem
        self.order = order
        sequence, eligible = order.sequence, problem.eligible
        exclusive_sets = {eligible[item] for item in sequence if plan.items[item].is_exclusive}
        self._match_again = len(exclusive_sets) > 1
        self.can_be_hopeless = self._match_again or problem.terms > 0
        self.subtrees_of = [
            [number for number, subtree in enumerate(plan.subtrees) if item in subtree.together]
            for item in range(len(plan.items))
        ]
        self._coming_terms = [0] * (len(sequence) + 1)
        self.coming_tops = [[0] * len(plan.subtrees) for _ in range(len(sequence) + 1)]
        for step in range(len(sequence) - 1, -1, -1):
            item = sequence[step]
            terms = self._coming_terms[step + 1]
            if not plan.items[item].is_suffixed and problem.terms:
                for position in bits(eligible[item]):
                    terms |= problem.covers[position]
            self._coming_terms[step] = terms
            tops = list(self.coming_tops[step + 1])
            for number in self.subtrees_of[item]:
                tops[number] |= eligible[item]
            self.coming_tops[step] = tops

    def is_hopeless(self, step: int, covered_terms: int, used_mask: int, named_count: int) -> bool:
        """Check what the items from this step on need together.

        :param covered_terms: the required terms that are met already.
        :param used_mask: the positions that isolated items may not take.
        :param named_count: those of them that no item may take.
        """
        terms = self.problem.terms
        if terms and (covered_terms | self._coming_terms[step]) != terms:
            return True
        if not self._match_again or self.order.is_symmetric[step]:
            return False
        items = self.order.sequence[step:]
        return not have_distinct_providers(
            self.plan, self.problem.eligible, items, used_mask, named_count
        )

    def terms_due(self, step: int, covered_terms: int) -> int:
        """Return the required terms that only the item of this step can still meet."""
        return self.problem.terms & ~covered_terms & ~self._coming_terms[step + 1]

    def with_room(
        self,
        step: int,
        wants: Sequence[tuple[int, int]],
        loads: Sequence[Sequence[int]],
        choices: list[int],
    ) -> list[int]:
        """Drop the choices from which on there is no room for all symmetric items still to come.

        :param wants: contested class and amount of the item.
        :param loads: by contested class and position, what is taken already.
        """
        needed_count = self.order.symmetric_left[step]
        exclusive = self.plan.items[self.order.sequence[step]].is_exclusive
        if not exclusive and not wants:
            return choices
        caps = self.problem.caps
        room = 0
        for at in range(len(choices) - 1, -1, -1):
            position = choices[at]
            room += (
                1
                if exclusive
                else min(
                    (caps[number][position] - loads[number][position]) // amount
                    for number, amount in wants
                )
            )
            if room >= needed_count:
                return choices[: at + 1]
        return []

    def towards_needed(
        self,
        step: int,
        blocked_mask: int,
        linked_sets: int,
        choices: list[int],
        placed_positions: list[int],
    ) -> list[int]:
        """Keep the choices after which one of the needed positions can still be taken."""
        needed_words = self.problem.needed_mask
        symmetric = self.order.symmetric_left[step]
        for later in range(step + symmetric, len(self.order.sequence)):
            if not self.order.is_symmetric[later] and self._can_reach(
                needed_words, later, step, blocked_mask, linked_sets, placed_positions
            ):
                return choices
        if symmetric == 1:
            return [position for position in choices if needed_words >> position & 1]
        # Symmetric items are placed in ascending order: beyond the last needed position there is
        # no way back.
        for at in range(len(choices) - 1, -1, -1):
            if needed_words >> choices[at] & 1:
                return choices[: at + 1]
        return []

    def _can_reach(
        self,
        positions: int,
        later: int,
        step: int,
        blocked_mask: int,
        linked_sets: int,
        placed_positions: list[int],
    ) -> bool:
        """Check whether the item of a later step may take one of some positions."""
        item = self.order.sequence[later]
        mask = self.problem.eligible[item] & positions & ~blocked_mask
        for number in self.subtrees_of[item]:
            mask = self.below_tops(
                number, step, mask, placed_positions, self.coming_tops[step][number]
            )
        if not self.problem.linked_sets:
            return bool(mask)
        sets = self.problem.linked_sets[item]
        return any(sets[position] & linked_sets for position in bits(mask))

    def below_tops(
        self, number: int, step: int, mask: int, placed_positions: list[int], coming: int
    ) -> int:
        """Keep the positions with which a same_subtree can still have a top.

        :param coming: the positions that the items still to be placed may take.
        """
        ancestors, descendants = self.problem.ancestors, self.problem.descendants
        subtree = self.plan.subtrees[number]
        common, members = -1, 0
        for item in self.order.sequence[:step]:
            if item in subtree.together:
                common &= ancestors[placed_positions[item]]
                members |= 1 << placed_positions[item]
        later = members | coming
        reach = 0
        for top in bits(common & (later | mask)):
            reach |= descendants[top]
        positions = 0
        for position in bits(mask & reach):
            if common & ancestors[position] & (later | 1 << position):
                positions |= 1 << position
        return positions
