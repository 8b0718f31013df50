"""Nodes of a guest matched with cells of a host. Bit sets: bit I of a node stands for cell I."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

State = tuple[list[int], dict[int, int], int]


def bits(mask: int) -> Iterator[int]:
    """Yield the numbers of the bits that are set, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


class Matching:
    """A matching of nodes with cells that grows by augmenting paths.

    :param allowed: the cells of each node.
    """

    __slots__ = ("allowed", "cell_of", "node_of", "taken")

    def __init__(self, allowed: Sequence[int]) -> None:
        self.allowed = allowed
        self.cell_of: list[int] = [-1] * len(allowed)
        self.node_of: dict[int, int] = {}
        self.taken = 0

    def complete(self, closed: int = 0) -> int:
        """Match every node, with no cell of `closed`; return a node that cannot be, or -1."""
        for node, cell in enumerate(self.cell_of):
            if cell < 0 and not self.augment(node, closed):
                return node
        return -1

    def augment(self, node: int, closed: int = 0) -> bool:
        """Match one more node; what is matched stays matched, though perhaps otherwise."""
        return self._augment(node, [closed])

    def _augment(self, node: int, seen: list[int]) -> bool:
        reachable = self.allowed[node] & ~seen[0]
        free = reachable & ~self.taken
        if free:
            self.taken |= free & -free
            self._put(node, (free & -free).bit_length() - 1)
            return True
        while reachable:
            low = reachable & -reachable
            seen[0] |= low
            cell = low.bit_length() - 1
            if self._augment(self.node_of[cell], seen):
                self._put(node, cell)
                return True
            reachable = self.allowed[node] & ~seen[0]
        return False

    def _put(self, node: int, cell: int) -> None:
        self.node_of[cell] = node
        self.cell_of[node] = cell

    def reachable(self, node: int) -> tuple[set[int], int]:
        """Return the nodes and cells that an unmatched node competes with: they are too few."""
        nodes, cells, queue = {node}, 0, [node]
        while queue:
            new = self.allowed[queue.pop()] & ~cells
            cells |= new
            for cell in bits(new):
                other = self.node_of.get(cell, -1)
                if other >= 0 and other not in nodes:
                    nodes.add(other)
                    queue.append(other)
        return nodes, cells

    def move(self, node: int, cell: int, closed: int) -> bool:
        """Put a node on a cell, if the others can then be matched without cells of `closed`.

        The whole matching is as before if not.
        """
        old = self.cell_of[node]
        if old == cell:
            return True
        displaced = self.node_of.get(cell, -1)
        before = self.state()
        if old >= 0:
            del self.node_of[old]
            self.taken &= ~(1 << old)
        self.take(node, cell)
        if displaced < 0:
            return True
        self.cell_of[displaced] = -1
        if self.augment(displaced, closed | 1 << cell):
            return True
        self.restore(before)
        return False

    def take(self, node: int, cell: int) -> None:
        """Put a node on a cell, also in the place of another."""
        self.taken |= 1 << cell
        self._put(node, cell)

    def state(self) -> State:
        """Return the matching as it is now."""
        return self.cell_of[:], dict(self.node_of), self.taken

    def restore(self, state: State) -> None:
        """Return to an earlier state."""
        self.cell_of, self.node_of, self.taken = state


def covering(allowed: Sequence[int], cells: int) -> list[int] | None:
    """Return a cell for each node such that all of `cells` are taken; None: there is no way.

    If the cells can be matched with nodes, and all nodes with cells, both can be done at once:
    growing a matching along augmenting paths never frees what it covers.
    """
    nodes_of = dict.fromkeys(bits(cells), 0)
    for node, mask in enumerate(allowed):
        for cell in bits(mask & cells):
            nodes_of[cell] |= 1 << node
    numbers = list(nodes_of)
    by_cell = Matching([nodes_of[cell] for cell in numbers])
    if by_cell.complete() >= 0:
        return None
    matching = Matching(allowed)
    for index, node in enumerate(by_cell.cell_of):
        matching.take(node, numbers[index])
    return matching.cell_of if matching.complete() < 0 else None
