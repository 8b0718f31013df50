"""The problem of one tree class, the order in which its items are placed, and their permutations.

The problem is all that a query can distinguish about the trees of the class. Items with few choices
are placed first; permutations of symmetric items are made without a search.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from itertools import chain, repeat
from itertools import permutations as all_orders
from operator import concat, itemgetter

from msgspec import Struct

from placement_server.candidates.query.query import Plan

Positions = tuple[int, ...]


def bits(mask: int) -> list[int]:
    """List the positions of a set, ascending."""
    positions = []
    while mask:
        low = mask & -mask
        positions.append(low.bit_length() - 1)
        mask ^= low
    return positions


class Problem(Struct, frozen=True, dict=True):
    """The problem to be solved for one class of trees.

    Positions count the providers of the tree in preorder and after them the sharing providers that
    it is linked to. Sets of positions are integers with one bit each.

    :param eligible: by item, the positions that can serve it alone.
    :param covers: by position, the required terms of the unsuffixed group that it meets, as bits.
    :param terms: all required terms of the unsuffixed group, as bits.
    :param caps: by contested class and position, how much it can give in sum.
    :param trees: sets of positions that belong to one tree; the first is the tree itself.
    :param own: how many positions the tree itself has.
    :param needed_mask: positions of which at least one must take part; 0 where there is no such
        rule.
    :param linked_sets: by item and position, the sets of links by which it can serve the item, as
        bits; one set must have the positions of all items. () where all are linked.
    """

    parents: tuple[int, ...]
    ancestors: tuple[int, ...]
    descendants: tuple[int, ...]
    eligible: tuple[int, ...]
    covers: tuple[int, ...]
    terms: int
    caps: tuple[tuple[int, ...], ...]
    trees: tuple[int, ...]
    own: int
    needed_mask: int = 0
    linked_sets: tuple[tuple[int, ...], ...] = ()

    @classmethod
    def of_one_provider(cls, items: int) -> "Problem":
        """Return the problem of a tree of one provider that serves so many items."""
        return cls((-1,), (1,), (1,), (1,) * items, (0,), 0, (), trees=(1,), own=1)

    @cached_property
    def labels(self) -> tuple[int, ...]:
        """A number for each position of the tree itself; equal numbers mean equal subtrees."""
        numbers: dict[tuple[object, ...], int] = {}
        labels = [0] * self.own
        children: list[list[int]] = [[] for _ in range(self.own)]
        for position in range(self.own - 1, -1, -1):
            column = (
                tuple(mask >> position & 1 for mask in self.eligible),
                self.covers[position],
                self.needed_mask >> position & 1,
                tuple(caps[position] for caps in self.caps),
                tuple(reversed(children[position])),
            )
            labels[position] = numbers.setdefault(column, len(numbers))
            if position:
                children[self.parents[position]].append(labels[position])
        return tuple(labels)


SymmetricItems = Sequence[tuple[int, ...]]


def permutations(symmetric_items: SymmetricItems, placement: Positions) -> Iterator[Positions]:
    """Yield the placements that differ from one only by which symmetric item took which provider.

    :param symmetric_items: sets of items that may be exchanged with each other.
    """
    if not symmetric_items:
        return iter(())
    return filter(placement.__ne__, _permute(symmetric_items, placement))


def _permute(symmetric_items: SymmetricItems, placement: Positions) -> Iterator[Positions]:
    """Yield all orders of the first set, for each of them all of the second, and so on."""
    items, *others = symmetric_items
    orders = variants(items, arrangements(itemgetter(*items)(placement)), placement)
    if not others:
        return orders
    return chain.from_iterable(map(partial(_permute, others), orders))


def variants(
    items: Sequence[int], places: Iterator[Positions], placement: Positions
) -> Iterator[Positions]:
    """Yield a placement with some of its items at other positions.

    :param places: the positions of these items, one by one.
    """
    if list(items) == list(range(len(placement))):
        return places
    # Searches with very many candidates spend their time here, so it is done in C.
    reorder = itemgetter(
        *(
            items.index(item) if item in items else len(items) + item
            for item in range(len(placement))
        )
    )
    return map(reorder, map(concat, places, repeat(placement)))


def arrangements(positions: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield the distinct orders of some positions, in lexical order."""
    current = sorted(positions)
    if len(set(current)) == len(current):
        return all_orders(current)
    return _distinct_arrangements(current)


def _distinct_arrangements(current: list[int]) -> Iterator[tuple[int, ...]]:
    while True:
        yield tuple(current)
        pivot = len(current) - 2
        while pivot >= 0 and current[pivot] >= current[pivot + 1]:
            pivot -= 1
        if pivot < 0:
            return
        other = len(current) - 1
        while current[other] <= current[pivot]:
            other -= 1
        current[pivot], current[other] = current[other], current[pivot]
        current[pivot + 1 :] = reversed(current[pivot + 1 :])


class ItemOrder(Struct, frozen=True):
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
