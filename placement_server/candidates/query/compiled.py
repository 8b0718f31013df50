"""Compiled form of a query: items to place, and the rules that bind them together.

Every suffixed group is one *item*: one provider takes all of it. The unsuffixed group is one item
for each of its classes, because each class may come from another provider. The rules between
items do not depend on the trees, so they are compiled once for a query.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from placement_server.candidates.query.query import CandidateQuery

# More distinct sums than this are not listed.
_MOST_SUMS = 512


@dataclass(frozen=True, slots=True)
class Item:
    """Something that one provider must take whole.

    :param group: position of its group in the query.
    :param amounts: amounts by class id.
    :param is_suffixed: False for one class of the unsuffixed group.
    :param is_named: whether the query isolates this group from all others.
    """

    group: int
    amounts: tuple[tuple[int, int], ...]
    is_suffixed: bool
    is_named: bool


@dataclass(frozen=True, slots=True)
class ContestedClass:
    """A class that several items request, so that one provider may have to serve more than one.

    :param wants: amount by item.
    :param sums: the sums that any of the items can come to, ascending from 0, or () when there
        are too many to list.
    """

    class_id: int
    wants: Mapping[int, int]
    total: int
    sums: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Subtree:
    """A same_subtree constraint, by items."""

    together: frozenset[int]
    apart: frozenset[int]


@dataclass(frozen=True, slots=True)
class Plan:
    """The items of a query and the rules between them, whatever the tree.

    :param wants: by class, the amounts by item.
    :param is_isolated: whether no two suffixed items may be on one provider.
    :param one_per_tree: whether only one provider of a tree may take part (before nesting).
    """

    items: tuple[Item, ...]
    wants: Mapping[int, Mapping[int, int]]
    contested_classes: tuple[ContestedClass, ...]
    subtrees: tuple[Subtree, ...]
    is_isolated: bool
    one_per_tree: bool

    def needs(self, placement: Sequence[int]) -> Counter[tuple[int, int]]:
        """Return what a placement takes, by class and position."""
        needs: Counter[tuple[int, int]] = Counter()
        for item, position in zip(self.items, placement, strict=True):
            for class_id, amount in item.amounts:
                needs[class_id, position] += amount
        return needs


def plan(query: CandidateQuery, class_ids: Mapping[str, int], *, one_per_tree: bool) -> Plan:
    """Compile items and rules. All class names of the query must be in `class_ids`."""
    items: list[Item] = []
    for number, group in enumerate(query.groups):
        amounts = tuple((class_ids[name], amount) for name, amount in group.resources)
        if group.suffix:
            items.append(Item(number, amounts, True, group.suffix in query.isolate))
        else:
            items.extend(Item(number, (amount,), False, False) for amount in amounts)
    is_isolated = query.group_policy == "isolate"
    by_suffix = {
        query.groups[item.group].suffix: position
        for position, item in enumerate(items)
        if item.is_suffixed
    }
    subtrees = tuple(
        Subtree(
            frozenset(by_suffix[suffix] for suffix in subtree.together),
            frozenset(by_suffix[suffix] for suffix in subtree.apart),
        )
        for subtree in query.same_subtree
    )
    wants = _wants(items)
    contested_classes = _contested_classes(items, wants, is_isolated)
    return Plan(tuple(items), wants, contested_classes, subtrees, is_isolated, one_per_tree)


def _wants(items: list[Item]) -> dict[int, dict[int, int]]:
    wants: dict[int, dict[int, int]] = {}
    for position, item in enumerate(items):
        for class_id, amount in item.amounts:
            wants.setdefault(class_id, {})[position] = amount
    return wants


def _contested_classes(
    items: list[Item], wants: Mapping[int, Mapping[int, int]], is_isolated: bool
) -> tuple[ContestedClass, ...]:
    contested_classes = []
    for class_id, by_item in wants.items():
        if len(by_item) < 2 or (is_isolated and all(items[item].is_suffixed for item in by_item)):
            continue
        contested_classes.append(
            ContestedClass(class_id, by_item, sum(by_item.values()), _sums(list(by_item.values())))
        )
    return tuple(contested_classes)


def _sums(amounts: list[int]) -> tuple[int, ...]:
    sums = {0}
    for amount in amounts:
        sums |= {other + amount for other in sums}
        if len(sums) > _MOST_SUMS:
            return ()
    return tuple(sorted(sums))
