"""Parts of a request that take nothing of each other, so that a tree takes as many as of the least.

Items compete where they want the same class of the same provider, or may not be on one. Which do
depends on the tree: on a flat host groups of one class compete that are apart on a nested one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from placement_server.candidates.bounds.memory import Account
from placement_server.candidates.capacity.bounds import Counts, are_isolated
from placement_server.candidates.capacity.rows import Groups
from placement_server.candidates.index.arrays import BoolArray, IntArray
from placement_server.candidates.query.compiled import Plan, Subtree

Pair = tuple[int, int]
Components = tuple[tuple[int, ...], ...]

# A pair as the key of a dict, and its places in the lists that are made of them.
_BYTES_OF_A_PAIR = 160


@dataclass(frozen=True, slots=True)
class Part:
    """Items that are counted together.

    :ivar components: the items that compete with each other.
    :ivar subtree: the rule that binds all the items, if it is the only one and says nothing else.
    :ivar copies: the same rule for so many sets of items that ask for the same, of which these
        are the first; the sets compete with each other.
    :ivar is_loose: whether there are other rules, which are not followed in counting: then only
        the most that is counted holds.
    """

    components: Components
    subtree: Subtree | None = None
    copies: tuple[tuple[int, ...], ...] = ()
    is_loose: bool = False

    @property
    def items(self) -> tuple[int, ...]:
        """All items; of copies the first."""
        return tuple(item for component in self.components for item in component)


def competitors(
    plan: Plan, counts: Counts, groups: Groups, check: Callable[[], None], account: Account
) -> dict[Pair, BoolArray]:
    """Return by tree which pairs of items compete; pairs that never do are left out.

    :param check: called now and then; it may raise to end the count.
    :param account: counts the pairs.
    """
    pairs: dict[Pair, BoolArray] = {}
    masks: dict[tuple[int, ...], BoolArray] = {}
    classes = [frozenset(dict(item.amounts)) for item in plan.items]
    for first in range(len(plan.items)):
        check()
        known_pairs = len(pairs)
        for second in range(first + 1, len(plan.items)):
            if not classes[first] & classes[second] and not are_isolated(plan, first, second):
                continue
            key = id(counts[first]), id(counts[second])
            if key not in masks:
                both = (counts[first] > 0) & (counts[second] > 0)
                masks[key] = groups.total(both) > 0
            if masks[key].any():
                pairs[first, second] = masks[key]
        account.take(_BYTES_OF_A_PAIR * (len(pairs) - known_pairs))
    return pairs


def by_pattern(
    pairs: dict[Pair, BoolArray], trees: IntArray
) -> Iterator[tuple[IntArray, list[Pair]]]:
    """Yield sets of trees in which the same pairs compete, with these pairs."""
    patterns = np.zeros(len(trees), dtype=np.int64)
    columns: dict[int, BoolArray] = {id(column): column for column in pairs.values()}
    for column in columns.values():
        _values, patterns = np.unique(2 * patterns + column[trees], return_inverse=True)
    for pattern in range(int(patterns.max(initial=-1)) + 1):
        alike = trees[patterns == pattern]
        yield alike, [pair for pair, column in pairs.items() if column[alike[0]]]


def parts(plan: Plan, counts: Counts, pairs: Sequence[Pair]) -> list[Part]:
    """Split the items of a plan by what competes, and by the same_subtree rules.

    :param counts: by item; items that may ask for the same have one and the same array.
    """
    every = range(len(plan.items))
    components = _components_of(every, pairs)
    rules = [rule for rule in dict.fromkeys(plan.subtrees) if len(rule.together | rule.apart) > 1]
    bound_pairs = [(item, other) for rule in rules for item, other in _chain(rule)]
    chains = [pair for component in components for pair in pairwise(component)]
    found_parts = []
    for items in _components_of(every, [*chains, *bound_pairs]):
        members = frozenset(items)
        binding = [rule for rule in rules if rule.together <= members]
        own = tuple(component for component in components if component[0] in members)
        if not binding:
            found_parts.append(Part(own))
        elif len(binding) == 1 and binding[0].together == members:
            found_parts.append(Part(own, binding[0]))
        elif copies := _copies(plan, counts, binding, members):
            first = copies[0]
            within = [pair for pair in pairs if set(pair) <= set(first)]
            found_parts.append(Part(_components_of(first, within), binding[0], copies))
        else:
            found_parts.append(Part(own, is_loose=True))
    return found_parts


def _copies(
    plan: Plan, counts: Counts, rules: Sequence[Subtree], members: frozenset[int]
) -> tuple[tuple[int, ...], ...]:
    """Return the items of each rule, those that ask for the same in the same place.

    Nothing where the rules are not copies of one, or not all the items are bound by just one.
    """

    def kind(item: int) -> tuple[object, ...]:
        each = plan.items[item]
        return sorted(each.amounts), each.is_suffixed, each.is_named, id(counts[item])

    copies = [tuple(sorted(rule.together, key=kind)) for rule in rules]
    is_disjoint = sum(map(len, copies)) == len(members)
    covers = frozenset().union(*copies) == members
    alike = all(list(map(kind, copy)) == list(map(kind, copies[0])) for copy in copies)
    is_plain = not any(rule.apart for rule in rules)
    return tuple(copies) if is_disjoint and covers and alike and is_plain else ()


def _chain(rule: Subtree) -> Iterator[Pair]:
    items = sorted(rule.together | rule.apart)
    return pairwise(items)


def _components_of(items: Sequence[int], pairs: Iterable[Pair]) -> Components:
    """Return the sets of items that pairs connect, each ascending."""
    leader = {item: item for item in items}

    def find(item: int) -> int:
        while leader[item] != item:
            leader[item] = leader[leader[item]]
            item = leader[item]
        return item

    for first, second in pairs:
        leader[find(second)] = find(first)
    members: dict[int, list[int]] = {}
    for item in items:
        members.setdefault(find(item), []).append(item)
    return tuple(map(tuple, members.values()))
