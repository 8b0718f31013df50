"""NUMA cells as guests can use them: CPUs by kind, ordinary memory, huge pages.

NumaCell (facts)  --merge, leave out-->  GuestCell  --records-->  <root>_NUMA<id>
                                                                   └ <root>_NUMA<id>_PAGES<KiB>
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from compute_agent.discovery.facts import CellId, HostTopology, NumaCell
from compute_agent.virt.cpu_sets import GuestCpus, format_cpu_set
from compute_agent.virt.layout.options import LayoutOptions


class PagePool(NamedTuple):
    """Huge pages of one size on one cell, in MiB."""

    size_kib: int
    total_mib: int
    reserved_mib: int


class CellProvider(NamedTuple):
    """A cell that gets a provider."""

    id: int
    shared_cpus: frozenset[int]
    dedicated_cpus: frozenset[int]
    memory_mib: int
    """Memory that is not in huge pages."""
    pools: tuple[PagePool, ...] = ()

    @property
    def cpus(self) -> frozenset[int]:
        return self.shared_cpus | self.dedicated_cpus


class GuestCells(NamedTuple):
    cells: tuple[CellProvider, ...]
    """By id; never empty."""
    provider_of: Mapping[int, int]
    """Cell of the machine -> cell that has its provider; cells left out are missing."""
    warnings: tuple[str, ...] = ()


def host_memory_mib(topology: HostTopology, options: LayoutOptions) -> int:
    """Return the memory of the whole host, without that of GPUs unless it is asked for."""
    total = topology.memory_kib
    if not options.gpu.report_memory_cells:
        total -= sum(cell.memory_kib for cell in topology.cells if cell.gpu_memory_of)
    return max(total, 0) // 1024


def guest_cells(topology: HostTopology, cpus: GuestCpus, options: LayoutOptions) -> GuestCells:
    """Decide which cells get a provider and what each of them has for guests.

    Left out: the memory of GPUs (unless asked for) and cells with neither CPUs nor memory. A cell
    with CPUs but without memory is merged into the nearest one with memory, as no guest could use
    it alone.
    """
    kept_cells = [
        cell
        for cell in topology.cells
        if (cell.cpus or cell.memory_kib)
        and (cell.gpu_memory_of is None or options.gpu.report_memory_cells)
    ]
    kept_cells = kept_cells or list(topology.cells[:1])
    provider_of, warnings = _merged_cells(kept_cells)
    offered_cpus = _cpus_by_cell(cpus.shared_cpus | cpus.dedicated_cpus, kept_cells)
    cells = []
    for cell in kept_cells:
        if provider_of[cell.id] != cell.id:
            continue
        own = frozenset(
            cpu
            for source, target in provider_of.items()
            if target == cell.id
            for cpu in offered_cpus.get(source, ())
        )
        pools = tuple(_pools(cell, options))
        in_pages = sum(pool.total_mib for pool in pools)
        cells.append(
            CellProvider(
                cell.id,
                own & cpus.shared_cpus,
                own & cpus.dedicated_cpus,
                max(cell.memory_kib // 1024 - in_pages, 0),
                pools,
            )
        )
    if options.file_backed_memory_mib:
        cells = _spread_file_backed(cells, options.file_backed_memory_mib)
    else:
        cells = _cap_memory(cells, host_memory_mib(topology, options))
    return GuestCells(tuple(cells), provider_of, warnings)


def _merged_cells(cells: Sequence[NumaCell]) -> tuple[dict[int, int], tuple[str, ...]]:
    """Return the cell that has the provider of each cell, and a warning for each that is merged."""
    with_memory = [cell for cell in cells if cell.memory_kib]
    warnings = []
    provider_of: dict[int, int] = {}
    for cell in cells:
        target = cell
        if not cell.memory_kib and with_memory:
            target = _nearest(cell, with_memory)
            warnings.append(
                f"NUMA cell {cell.id} has CPUs {format_cpu_set(cell.cpus)} but no memory: "
                f"they are counted with cell {target.id}"
            )
        provider_of[cell.id] = target.id
    return provider_of, tuple(warnings)


def reserved_memory(cells: Sequence[CellProvider], options: LayoutOptions) -> dict[int, int]:
    """Return MiB kept for the host by cell: as configured per cell, else in proportion to memory.

    What rounding leaves over goes to the lowest cell that has room for it.
    """
    if options.reserved_memory_mib_per_cell:
        return {cell.id: options.reserved_memory_mib_per_cell.get(cell.id, 0) for cell in cells}
    if options.file_backed_memory_mib:
        return {cell.id: 0 for cell in cells}
    total = sum(cell.memory_mib for cell in cells)
    reserved_mib = options.reserved_memory_mib
    if reserved_mib >= total:
        # more than there is: the check of reserve against total reports it for each cell
        return _excessive_reserve(cells, reserved_mib, total)
    reserved = {cell.id: reserved_mib * cell.memory_mib // total for cell in cells}
    rest = reserved_mib - sum(reserved.values())
    for cell in cells:
        additional_mib = min(rest, cell.memory_mib - reserved[cell.id])
        reserved[cell.id] += additional_mib
        rest -= additional_mib
    return reserved


def reserved_cpus(cells: Sequence[CellProvider], count: int) -> dict[int, int]:
    """Return CPUs kept for the host by cell, counted from the lowest numbered CPU upwards."""
    cell_of = {cpu: cell.id for cell in cells for cpu in cell.shared_cpus}
    kept_cpus = sorted(cell_of)[:count]
    reserved = {cell.id: 0 for cell in cells}
    for cpu in kept_cpus:
        reserved[cell_of[cpu]] += 1
    return reserved


def cell_facts(
    topology: HostTopology, cpus: GuestCpus, options: LayoutOptions
) -> list[dict[str, object]]:
    """Return the cells of the machine, and what each of them has for guests, as JSON types.

    ``guests`` is None for a cell that has nothing of its own for them. Memory in MiB, without
    what is kept for the host.
    """
    guests = guest_cells(topology, cpus, options).cells
    memory = reserved_memory(guests, options)
    host_cpus = reserved_cpus(guests, options.reserved_cpus)
    for_guests = {
        cell.id: {
            "shared_cpus": sorted(cell.shared_cpus),
            "dedicated_cpus": sorted(cell.dedicated_cpus),
            "reserved_cpus": host_cpus[cell.id],
            "memory_mib": max(cell.memory_mib - memory[cell.id], 0),
            "pages_mib": {p.size_kib: max(p.total_mib - p.reserved_mib, 0) for p in cell.pools},
        }
        for cell in guests
    }
    return [
        {
            "id": cell.id,
            "cpus": list(cell.cpus),
            "memory_kib": cell.memory_kib,
            "huge_pages": {p.size_kib: p.total for p in cell.huge_pages},
            "guests": for_guests.get(int(cell.id)),
        }
        for cell in topology.cells
    ]


def _excessive_reserve(
    cells: Sequence[CellProvider], wanted_mib: int, total: int
) -> dict[int, int]:
    reserved = {cell.id: cell.memory_mib for cell in cells}
    reserved[cells[0].id] += wanted_mib - total
    return reserved


def _nearest(cell: NumaCell, candidates: Sequence[NumaCell]) -> NumaCell:
    distance = dict(cell.distances)
    return min(candidates, key=lambda other: (distance.get(other.id, 255), other.id))


def _cpus_by_cell(cpus: frozenset[int], cells: Sequence[NumaCell]) -> dict[int, set[int]]:
    """Return the CPUs of each cell.

    One that is switched off is in no cell, and counts with its neighbour by number.
    """
    home: dict[int, CellId] = {cpu: cell.id for cell in cells for cpu in cell.cpus}
    known_cpus = sorted(home)
    by_cell: dict[int, set[int]] = {}
    for cpu in sorted(cpus):
        if cpu not in home and not known_cpus:
            cell: int = cells[0].id
        else:
            cell = (
                home[cpu] if cpu in home else home[min(known_cpus, key=lambda k: (abs(k - cpu), k))]
            )
        by_cell.setdefault(cell, set()).add(cpu)
    return by_cell


def _pools(cell: NumaCell, options: LayoutOptions) -> list[PagePool]:
    reserved = {(r.cell, r.size_kib): r.count for r in options.reserved_pages}
    return [
        PagePool(
            pages.size_kib,
            pages.total * pages.size_kib // 1024,
            reserved.get((cell.id, pages.size_kib), 0) * pages.size_kib // 1024,
        )
        for pages in cell.huge_pages
        if pages.total * pages.size_kib >= 1024
    ]


def _cap_memory(cells: list[CellProvider], most: int) -> list[CellProvider]:
    """Cells cannot have more than the host: rounding and firmware reserves come off the last."""
    excess = sum(c.memory_mib + sum(p.total_mib for p in c.pools) for c in cells) - most
    capped_cells = []
    for cell in reversed(cells):
        cut = min(max(excess, 0), cell.memory_mib)
        excess -= cut
        capped_cells.append(cell._replace(memory_mib=cell.memory_mib - cut))
    return capped_cells[::-1]


def _spread_file_backed(cells: list[CellProvider], total: int) -> list[CellProvider]:
    """File backed memory is bound to no cell; it is shown in proportion to the cells' memory."""
    weight = sum(cell.memory_mib for cell in cells)
    shares = [
        total * (cell.memory_mib if weight else 1) // (weight or len(cells)) for cell in cells
    ]
    shares[0] += total - sum(shares)
    return [
        cell._replace(memory_mib=share, pools=()) for cell, share in zip(cells, shares, strict=True)
    ]
