"""Contradictions that refuse a whole tree before any item is placed in it.

Each is a bound that is cheap to compute: the eligible providers of each item, the subtrees that can
still have a top, the capacity of the eligible providers in sum, and a matching of isolated items to
distinct providers (Hall's condition).
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from placement_server.candidates.query.compiled import Plan
from placement_server.candidates.search.matching import can_match
from placement_server.candidates.search.problem import Problem, bits


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
        if item.is_named or (plan.is_isolated and item.is_suffixed):
            free = eligible[number] & ~(used_mask if item.is_named else named_count)
            needs[free] = needs.get(free, 0) + 1
    if not needs or (len(needs) == 1 and all(m.bit_count() >= n for m, n in needs.items())):
        return True
    return can_match(needs)
