"""Fit of a guest's NUMA nodes on the cells of the host. Pure.

Every node gets a cell of its own that has its CPUs and its memory, and one of the cells must be
near each network of the guest that is near some cell at all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from compute_agent.claims.host_cells import FreeCell
from compute_agent.state.claim import ClaimedCell


class NodeNeed(NamedTuple):
    """What one NUMA node of a guest needs; memory in MiB.

    :param page_sizes: sizes in KiB of huge pages of which its memory must be in one; empty:
        ordinary memory.
    """

    vcpus: int
    pinned_count: int
    memory_mib: int
    page_sizes: frozenset[int] = frozenset()


class GuestNeeds(NamedTuple):
    """The NUMA nodes of a guest, and the networks that it must be near.

    :param names_nodes: it named nodes; if not there is one, which may lie on several cells.
    """

    nodes: tuple[NodeNeed, ...]
    names_nodes: bool = False
    physnets: frozenset[str] = frozenset()
    needs_tunnel: bool = False


class HostNetworks(NamedTuple):
    """The cells that are near the networks of this host."""

    physnets: Mapping[str, frozenset[int]] = MappingProxyType({})
    tunnel_cells: frozenset[int] = frozenset()

    def near(self, cell: int) -> dict[str, object]:
        """Return the networks that a cell is near, as they are announced."""
        physnets = sorted(name for name, cells in self.physnets.items() if cell in cells)
        return {"physnets": physnets, "tunneled": cell in self.tunnel_cells}

    def are_near(self, cells: Collection[int], needs: GuestNeeds) -> bool:
        """Whether a guest on `cells` is near each of its networks that is near some cell."""
        near_cells = [self.physnets.get(name, frozenset()) for name in needs.physnets]
        near_cells += [self.tunnel_cells] if needs.needs_tunnel else []
        return all(not near or not near.isdisjoint(cells) for near in near_cells)


def fit(
    needs: GuestNeeds,
    cells: Sequence[FreeCell],
    networks: HostNetworks,
    *,
    packing: bool = False,
    bound_cells: Mapping[int, int] | None = None,
) -> tuple[ClaimedCell, ...] | None:
    """Return a cell for each node, in the order of the nodes; None: they do not fit.

    :param packing: cells with the least room first, instead of those with the most.
    :param bound_cells: node to the id of the cell that it must be on.
    """
    ordered_cells = sorted(
        cells, key=lambda cell: (_room(cell) if packing else _less(cell), cell.id)
    )
    for cells_of_nodes in _assignments(needs.nodes, ordered_cells, bound_cells or {}):
        if networks.are_near([claimed_cell.cell for claimed_cell in cells_of_nodes], needs):
            return cells_of_nodes
    return None


def spread(node: NodeNeed, cells: Sequence[FreeCell]) -> tuple[ClaimedCell, ...]:
    """Return cells over which a guest that named no nodes lies, as few as its pinned CPUs allow.

    Its other CPUs float and its memory is anywhere, so only what is pinned counts. Empty: there
    are not as many CPUs.
    """
    remaining_cpus, chosen_cells = node.pinned_count, []
    for cell in sorted(cells, key=lambda cell: (-len(cell.pinnable), cell.id)):
        if own := cell.pinnable[:remaining_cpus]:
            chosen_cells.append(ClaimedCell(cell.id, pinned_cpus=own))
            remaining_cpus -= len(own)
    return () if remaining_cpus else tuple(chosen_cells)


def shortage(node: NodeNeed, cells: Sequence[FreeCell]) -> str:
    """Say what the cells have free, where a node fits on none of them."""
    pages = f" in pages of {_sizes(node)} KiB" if node.page_sizes else ""
    has = "; ".join(
        f"cell {cell.id}: {cell.vcpus} shared CPUs on {len(cell.shared_cpus)}, "
        f"{len(cell.pinnable)} CPUs to pin, {_memory(cell, node)} MiB{pages}"
        for cell in cells
    )
    return (
        f"{node.vcpus} shared and {node.pinned_count} pinned CPUs with {node.memory_mib} "
        f"MiB{pages} are wanted on one cell; free are {has or 'no cells'}"
    )


def _assignments(
    nodes: Sequence[NodeNeed],
    cells: Sequence[FreeCell],
    bound_cells: Mapping[int, int],
    number: int = 0,
) -> Iterator[tuple[ClaimedCell, ...]]:
    if number == len(nodes):
        yield ()
        return
    for index, cell in enumerate(cells):
        if bound_cells.get(number, cell.id) != cell.id:
            continue
        claimed_cell = _place(nodes[number], cell)
        if claimed_cell is None:
            continue
        later = cells[index + 1 :]
        # of nodes that are alike one order is as good as any other
        others = later if _alike(nodes, number, bound_cells) else [*cells[:index], *later]
        for rest in _assignments(nodes, others, bound_cells, number + 1):
            yield (claimed_cell, *rest)


def _alike(nodes: Sequence[NodeNeed], number: int, bound_cells: Mapping[int, int]) -> bool:
    """Whether a node and the next one may change places."""
    pair = nodes[number : number + 2]
    return len(pair) == 2 and pair[0] == pair[1] and not bound_cells.keys() & {number, number + 1}


def _place(node: NodeNeed, cell: FreeCell) -> ClaimedCell | None:
    """Return the node on the cell, None where the cell has no room for it."""
    # two vCPUs of one guest never share a CPU for long: there must be as many, overcommit or not
    if node.vcpus > min(cell.vcpus, len(cell.shared_cpus)) or node.pinned_count > len(
        cell.pinnable
    ):
        return None
    size: int | None = None
    if node.page_sizes:
        size = next((s for s in sorted(node.page_sizes, reverse=True) if _holds(cell, node, s)), 0)
        if not size:
            return None
    elif node.memory_mib > cell.memory_mib:
        return None
    return ClaimedCell(
        cell.id,
        vcpus=node.vcpus,
        shared_cpus=cell.shared_cpus if node.vcpus else (),
        pinned_cpus=cell.pinnable[: node.pinned_count],
        memory_mib=node.memory_mib,
        page_size_kib=size,
    )


def _holds(cell: FreeCell, node: NodeNeed, size: int) -> bool:
    whole = node.memory_mib * 1024 % size == 0
    return whole and node.memory_mib <= cell.pages_mib.get(size, 0)


def _memory(cell: FreeCell, node: NodeNeed) -> int:
    if not node.page_sizes:
        return cell.memory_mib
    return max((cell.pages_mib.get(size, 0) for size in node.page_sizes), default=0)


def _sizes(node: NodeNeed) -> str:
    return " or ".join(str(size) for size in sorted(node.page_sizes))


def _room(cell: FreeCell) -> tuple[int, int, int]:
    return len(cell.pinnable), cell.vcpus, cell.memory_mib


def _less(cell: FreeCell) -> tuple[int, int, int]:
    pinnable, vcpus, memory = _room(cell)
    return -pinnable, -vcpus, -memory
