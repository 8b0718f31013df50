"""In which order the items of a query are placed in one kind of tree, and which are alike."""

from collections.abc import Sequence
from dataclasses import dataclass

from placement_server.candidates.query.compiled import Plan
from placement_server.candidates.search.problem import Problem


@dataclass(frozen=True, slots=True)
class ItemOrder:
    """Items with few choices first, alike ones side by side.

    Items are alike when they ask for the same amounts, can be served by the same providers and are
    bound by the same rules.

    :param sequence: the items in the order in which they are placed.
    :param alike_left: by step, how many alike items are still to be placed, its own included.
    :param follows: by step, whether the item before is alike.
    :param alike: the sets of more than one alike items.
    """

    sequence: list[int]
    alike_left: list[int]
    follows: list[bool]
    alike: list[tuple[int, ...]]


def order_items(plan: Plan, problem: Problem, eligible: Sequence[int]) -> ItemOrder:
    """Put the items of a plan in order.

    :param eligible: by item, the positions that can serve it, as the solver has narrowed them.
    """
    groups: dict[tuple[object, ...], list[int]] = {}
    for number, item in enumerate(plan.items):
        member = tuple(
            (number in subtree.together, number in subtree.apart) for subtree in plan.subtrees
        )
        alike = (
            item.suffixed, item.named, tuple(sorted(item.amounts)), eligible[number], member,
            problem.linked[number] if problem.linked else None,
            None if item.suffixed else number,
        )  # fmt: skip
        groups.setdefault(alike, []).append(number)
    classes = sorted(groups.values(), key=lambda each: (eligible[each[0]].bit_count(), each[0]))
    return ItemOrder(
        sequence=[item for alike in classes for item in alike],
        alike_left=[len(alike) - at for alike in classes for at in range(len(alike))],
        follows=[at > 0 for alike in classes for at in range(len(alike))],
        alike=[tuple(sorted(alike)) for alike in classes if len(alike) > 1],
    )
