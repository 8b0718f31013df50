"""The shape of a provider tree, and the preorder in which its providers occupy slots."""

import logging
from collections.abc import Sequence

from placement_server.store.changes.snapshot import ProviderRow


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


LOG = logging.getLogger(__name__)


def in_preorder(root_id: int, rows: Sequence[ProviderRow]) -> list[tuple[ProviderRow, int]]:
    """Put the providers of a tree in preorder with the positions of their parents.

    A tree whose providers are not all below its root is logged and left out: a search can still
    answer from all others.
    """
    if len(rows) == 1 and rows[0].parent_id is None:
        return [(rows[0], -1)]
    children: dict[int | None, list[ProviderRow]] = {}
    for row in sorted(rows, key=lambda provider: provider.id):
        children.setdefault(row.parent_id, []).append(row)
    in_order: list[tuple[ProviderRow, int]] = []
    stack = [(row, -1) for row in children.get(None, ()) if row.id == root_id]
    while stack:
        row, parent = stack.pop()
        position = len(in_order)
        in_order.append((row, parent))
        stack.extend((child, position) for child in reversed(children.get(row.id, ())))
    if len(in_order) != len(rows):
        LOG.error(
            "The providers %s have the root with id %d, but only %d of %d are below it. They are "
            "left out of all allocation candidates until their parents and roots are corrected in "
            "the database.",
            [row.uuid for row in rows],
            root_id,
            len(in_order),
            len(rows),
        )
        return []
    return in_order
