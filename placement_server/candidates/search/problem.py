"""The problem of one tree class: all that a query can distinguish about its trees."""

from dataclasses import dataclass
from functools import cached_property

Positions = tuple[int, ...]


def bits(mask: int) -> list[int]:
    """List the positions of a set, ascending."""
    positions = []
    while mask:
        low = mask & -mask
        positions.append(low.bit_length() - 1)
        mask ^= low
    return positions


@dataclass(frozen=True)
class Problem:
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
