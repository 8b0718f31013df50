"""The order in which the items of a query are placed in one tree class, and their symmetry."""

from dataclasses import dataclass

from placement_server.candidates.query.compiled import Plan
from placement_server.candidates.search.problem import Problem


@dataclass(frozen=True, slots=True)
class ItemOrder:
    """Items with few choices first, symmetric ones side by side.

    Items are symmetric when they ask for the same amounts, can be served by the same providers and
    are bound by the same rules.

    :param sequence: the items in the order in which they are placed.
    :param symmetric_left: by step, how many symmetric items are still to be placed, its own
        included.
    :param is_symmetric: by step, whether its item is symmetric to the one before.
    :param symmetric_items: the symmetry classes of more than one item.
    """

    sequence: list[int]
    symmetric_left: list[int]
    is_symmetric: list[bool]
    symmetric_items: list[tuple[int, ...]]


def order_items(plan: Plan, problem: Problem) -> ItemOrder:
    """Put the items of a plan in order."""
    members: dict[tuple[object, ...], list[int]] = {}
    eligible = problem.eligible
    for number, item in enumerate(plan.items):
        subtrees = tuple(
            (number in subtree.together, number in subtree.apart) for subtree in plan.subtrees
        )
        key = (
            item.is_suffixed, item.is_named, tuple(sorted(item.amounts)), eligible[number],
            subtrees, problem.linked_sets[number] if problem.linked_sets else None,
            None if item.is_suffixed else number,
        )  # fmt: skip
        members.setdefault(key, []).append(number)
    classes = sorted(members.values(), key=lambda items: (eligible[items[0]].bit_count(), items[0]))
    return ItemOrder(
        sequence=[item for items in classes for item in items],
        symmetric_left=[len(items) - at for items in classes for at in range(len(items))],
        is_symmetric=[at > 0 for items in classes for at in range(len(items))],
        symmetric_items=[tuple(sorted(items)) for items in classes if len(items) > 1],
    )
