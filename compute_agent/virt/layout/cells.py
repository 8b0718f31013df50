"""NUMA cells as guests can use them: CPUs by kind, ordinary memory, huge pages.

NumaCell (facts)  --merge, leave out-->  GuestCell  --records-->  <root>_NUMA<id>
                                                                   └ <root>_NUMA<id>_PAGES<KiB>
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from compute_agent.discovery import cpu_list
from compute_agent.discovery.facts import MEMORY_TOLERANCE, CellId, Cpu, HostTopology, NumaCell
from compute_agent.virt.cpu_sets import GuestCpus
from compute_agent.virt.layout.options import LayoutOptions


class PagePool(Struct, frozen=True):
    """Huge pages of one size on one cell, in MiB."""

    size_kib: int
    total_mib: int
    reserved_mib: int


class CellProvider(Struct, frozen=True):
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


class GuestCells(Struct, frozen=True):
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
    offered_cpus, guesses = _cpus_by_cell(cpus.shared_cpus | cpus.dedicated_cpus, kept_cells)
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
    return GuestCells(tuple(cells), provider_of, (*warnings, *guesses))


def _merged_cells(cells: Sequence[NumaCell]) -> tuple[dict[int, int], tuple[str, ...]]:
    """Return the cell that has the provider of each cell, and a warning for each that is merged."""
    with_memory = [cell for cell in cells if cell.memory_kib]
    warnings = []
    provider_of: dict[int, int] = {}
    for cell in cells:
        target = cell
        if not cell.memory_kib and with_memory:
            distances = dict(cell.distances)
            target = min(with_memory, key=lambda other: (distances.get(other.id, 255), other.id))
            warnings.append(
                f"NUMA cell {cell.id} has CPUs {cpu_list.write(cell.cpus)} but no memory: "
                f"they are counted with cell {target.id}"
            )
        provider_of[cell.id] = target.id
    return provider_of, tuple(warnings)


def reserved_memory(cells: Sequence[CellProvider], options: LayoutOptions) -> dict[int, int]:
    """Return MiB kept for the host by cell: as configured, else in proportion to memory."""
    if options.reserved_memory_mib_per_cell:
        return {cell.id: options.reserved_memory_mib_per_cell.get(cell.id, 0) for cell in cells}
    if options.file_backed_memory_mib:
        return {cell.id: 0 for cell in cells}
    total = sum(cell.memory_mib for cell in cells)
    reserved_mib = options.reserved_memory_mib
    if reserved_mib >= total:
        # more than there is: the check of reserve against total reports it for each cell
        reserved = {cell.id: cell.memory_mib for cell in cells}
        reserved[cells[0].id] += reserved_mib - total
        return reserved
    return _in_proportion(reserved_mib, cells)


def _in_proportion(amount_mib: int, cells: Sequence[CellProvider]) -> dict[int, int]:
    """Return parts of an amount by cell, in proportion to memory.

    What rounding leaves over goes to the lowest cell that has room for it.
    """
    total = sum(cell.memory_mib for cell in cells) or 1
    parts = {cell.id: amount_mib * cell.memory_mib // total for cell in cells}
    rest = amount_mib - sum(parts.values())
    for cell in cells:
        additional_mib = min(rest, cell.memory_mib - parts[cell.id])
        parts[cell.id] += additional_mib
        rest -= additional_mib
    return parts


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

    `guests` is None for a cell that has nothing of its own for them. Memory in MiB, without
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
    cpus_by_id = {int(cpu.id): cpu for cpu in topology.cpus}
    return [
        {
            "id": cell.id,
            "cpus": list(cell.cpus),
            "memory_kib": cell.memory_kib,
            "huge_pages": {p.size_kib: p.total for p in cell.huge_pages},
            "distances": dict(cell.distances),
            "package": next(
                (cpus_by_id[cpu].package for cpu in cell.cpus if cpu in cpus_by_id), None
            ),
            "cores": _cores(cell.cpus, cpus_by_id),
            "guests": for_guests.get(int(cell.id)),
        }
        for cell in topology.cells
    ]


def _cores(cpus: Sequence[int], cpus_by_id: Mapping[int, Cpu]) -> list[dict[str, object]]:
    """Return the cores of a cell, with the L3 cache of each, which its lowest CPU names."""
    cores = {cpus_by_id[cpu].siblings: cpus_by_id[cpu].l3 for cpu in cpus if cpu in cpus_by_id}
    return [{"cpus": list(siblings), "l3": l3} for siblings, l3 in cores.items()]


def _cpus_by_cell(
    cpus: frozenset[int], cells: Sequence[NumaCell]
) -> tuple[dict[int, set[int]], list[str]]:
    """Return the CPUs of each cell, and a warning for those whose cell is a guess by number."""
    home: dict[int, CellId] = {
        cpu: cell.id for cell in cells for cpu in (*cell.cpus, *cell.offline_cpus)
    }
    known_cpus = sorted(home)
    homeless_cpus = sorted(cpus.difference(known_cpus))
    for cpu in homeless_cpus:
        nearest = min(known_cpus, key=lambda known: (abs(known - cpu), known), default=None)
        home[cpu] = cells[0].id if nearest is None else home[nearest]
    by_cell: dict[int, set[int]] = {}
    for cpu in sorted(cpus):
        by_cell.setdefault(home[cpu], set()).add(cpu)
    if not homeless_cpus or len(cells) == 1:
        return by_cell, []
    return by_cell, [
        f"CPUs {cpu_list.write(homeless_cpus)} are switched off and no NUMA cell names them: each "
        "is counted with its neighbour by number; switch them on once to see their cells"
    ]


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
    """Take off what the cells have more than the host.

    What a kernel reserves comes off each cell in proportion. A container with a part of the memory
    has it on the first cells, those with CPUs before others.
    """
    excess = sum(c.memory_mib + sum(p.total_mib for p in c.pools) for c in cells) - most
    if excess <= 0:
        return cells
    if excess * MEMORY_TOLERANCE > most:
        cuts = {}
        for cell in sorted(cells, key=lambda cell: not cell.cpus)[::-1]:
            cuts[cell.id] = min(excess, cell.memory_mib)
            excess -= cuts[cell.id]
    else:
        cuts = _in_proportion(min(excess, sum(cell.memory_mib for cell in cells)), cells)
    return [replace(cell, memory_mib=cell.memory_mib - cuts[cell.id]) for cell in cells]


def _spread_file_backed(cells: list[CellProvider], total: int) -> list[CellProvider]:
    """File backed memory is bound to no cell; it is shown in proportion to the cells' memory."""
    weight = sum(cell.memory_mib for cell in cells)
    shares = [
        total * (cell.memory_mib if weight else 1) // (weight or len(cells)) for cell in cells
    ]
    shares[0] += total - sum(shares)
    return [
        replace(cell, memory_mib=share, pools=()) for cell, share in zip(cells, shares, strict=True)
    ]
