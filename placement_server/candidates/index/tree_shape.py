"""The shape of a provider tree: the parents, without the providers themselves."""

from collections.abc import Sequence


class TreeShape:
    """The structure of one tree, shared by all trees that are built alike.

    Positions count in preorder from the root, which is 0. Sets of positions are integers with one
    bit per position, because most questions about a tree are then one operation.

    :param parents: position of the parent for each position, -1 for the root.
    """

    __slots__ = ("ancestors", "descendants", "ends", "parents", "size")

    def __init__(self, parents: Sequence[int]) -> None:
        self.parents = tuple(parents)
        self.size = len(self.parents)
        ends = list(range(1, self.size + 1))
        for position in range(self.size - 1, 0, -1):
            parent = self.parents[position]
            ends[parent] = max(ends[parent], ends[position])
        self.ends = tuple(ends)
        ancestors: list[int] = []
        for position, parent in enumerate(self.parents):
            ancestors.append((ancestors[parent] if parent >= 0 else 0) | 1 << position)
        self.ancestors = tuple(ancestors)
        """For each position the set of itself and everything above it."""

        self.descendants = tuple(
            (1 << end) - (1 << position) for position, end in enumerate(self.ends)
        )
        """For each position the set of itself and everything below it."""
