"""Records of CPUs, memory and disk: on the root in the flat layout, on the cells in the nested.

Beside them a provider for each kind of encrypted guests, each context good for one guest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from compute_agent.discovery.facts import HostTopology, MemoryEncryption
from compute_agent.provider_tree.trait_names import HW_NUMA_ROOT, PAGE_SIZE_PREFIX
from compute_agent.virt.cpu_sets import GuestCpus
from compute_agent.virt.layout import names
from compute_agent.virt.layout.cells import (
    GuestCells,
    host_memory_mib,
    reserved_cpus,
    reserved_memory,
)
from compute_agent.virt.layout.options import LayoutOptions
from compute_agent.virt.layout.wanted import MAX_TOTAL, ROOT, WantedProvider, WantedRecord
from compute_agent.virt.traits import arch_traits, cpu_traits, known_cpu_traits

_GIB = 1024**3

ENCRYPTION_CLASS = "MEM_ENCRYPTION_CONTEXT"
ENCRYPTION_TRAITS = {
    "amd_sev": "HW_CPU_X86_AMD_SEV",
    "amd_sev_es": "HW_CPU_X86_AMD_SEV_ES",
    "amd_sev_snp": "HW_CPU_X86_AMD_SEV_SNP",
    "intel_tdx": "HW_CPU_X86_INTEL_TDX",
}


def cell_key(cell: int) -> str:
    return f"numa:{cell}"


def pages_key(cell: int, size_kib: int) -> str:
    return f"pages:{cell}:{size_kib}"


def encryption_key(model: str) -> str:
    return f"mem_encryption:{model}"


def root_provider(
    root_name: str,
    topology: HostTopology,
    cpus: GuestCpus,
    options: LayoutOptions,
    *,
    shared_disk: bool,
) -> WantedProvider:
    """Lay out the root: the disk, and all CPUs and memory unless the cells have them.

    :param shared_disk: a sharing provider gives the disk, so the root must not.
    """
    inventory: dict[str, WantedRecord] = {}
    traits = arch_traits(topology.cpu_model.arch)
    if options.is_nested:
        traits |= dict.fromkeys(known_cpu_traits(), False)
    else:
        file_backed = options.file_backed_memory_mib
        inventory |= {
            "VCPU": WantedRecord(len(cpus.shared_cpus), options.reserved_cpus, ratio=None),
            "PCPU": WantedRecord(len(cpus.dedicated_cpus)),
            "MEMORY_MB": WantedRecord(
                file_backed or host_memory_mib(topology, options),
                0 if file_backed else options.reserved_memory_mib,
                ratio=None,
            ),
        }
        traits |= _traits_of_cpus(topology, inventory)
    if topology.disk is not None and not shared_disk:
        reserved = -(-options.reserved_disk_mib // 1024) - (-options.image_cache_bytes // _GIB)
        disk_gib = topology.disk.size_bytes // _GIB
        inventory["DISK_GB"] = WantedRecord(disk_gib, reserved, ratio=None)
    traits |= {HW_NUMA_ROOT: False}
    return WantedProvider(
        ROOT,
        root_name,
        inventory=inventory,
        units={} if options.is_nested else _cpu_units(cpus.dedicated_cpus),
        traits=frozenset(t for t, present in traits.items() if present),
        absent_traits=frozenset(t for t, present in traits.items() if not present),
    )


def cell_providers(
    root_name: str, topology: HostTopology, guest_cells: GuestCells, options: LayoutOptions
) -> Iterator[WantedProvider]:
    """Lay out the cells and their huge pages, parents first."""
    memory = reserved_memory(guest_cells.cells, options)
    host_cpus = reserved_cpus(guest_cells.cells, options.reserved_cpus)
    for cell in guest_cells.cells:
        inventory = {
            "VCPU": WantedRecord(len(cell.shared_cpus), host_cpus[cell.id], ratio=None),
            "PCPU": WantedRecord(len(cell.dedicated_cpus)),
            "MEMORY_MB": WantedRecord(cell.memory_mib, memory[cell.id], ratio=None),
        }
        traits = _traits_of_cpus(topology, inventory)
        yield WantedProvider(
            cell_key(cell.id),
            names.cell_name(root_name, cell.id),
            inventory=inventory,
            units=_cpu_units(cell.dedicated_cpus),
            traits=frozenset(t for t, present in traits.items() if present) | {HW_NUMA_ROOT},
            absent_traits=frozenset(t for t, present in traits.items() if not present),
        )
        for pool in cell.pools:
            unit = max(pool.size_kib // 1024, 1)
            pages = WantedRecord(pool.total_mib, pool.reserved_mib, min_unit=unit, step_size=unit)
            yield WantedProvider(
                pages_key(cell.id, pool.size_kib),
                names.pages_name(root_name, cell.id, pool.size_kib),
                parent=cell_key(cell.id),
                inventory={"MEMORY_MB": pages},
                traits=frozenset({f"{PAGE_SIZE_PREFIX}{pool.size_kib}"}),
                absent_prefixes=(PAGE_SIZE_PREFIX,),
            )


def check_reserves(
    topology: HostTopology, guest_cells: GuestCells, options: LayoutOptions
) -> Iterator[str]:
    """Say which reserves name something this machine does not have."""
    cells = {int(cell.id): cell for cell in topology.cells}
    for reserve in options.reserved_pages:
        reserve_text = (
            f"[DEFAULT]reserved_huge_pages names {reserve.size_kib} KiB pages on NUMA cell"
        )
        if reserve.cell not in cells:
            yield (
                f"{reserve_text} {reserve.cell}, which this machine does not have; it has "
                f"{', '.join(map(str, cells))}"
            )
        elif reserve.size_kib not in {p.size_kib for p in cells[reserve.cell].huge_pages}:
            sizes = [str(p.size_kib) for p in cells[reserve.cell].huge_pages]
            yield (
                f"{reserve_text} {reserve.cell}, which has none of this size; its sizes in KiB are "
                f"{', '.join(sizes) or 'none'}"
            )
    known_ids = {cell.id for cell in guest_cells.cells}
    for unknown_cell in sorted(options.reserved_memory_mib_per_cell.keys() - known_ids):
        yield (
            f"[compute]reserved_host_memory_mb_per_numa names NUMA cell {unknown_cell}, which has "
            f"no memory for guests on this machine; cells that have are "
            f"{', '.join(map(str, sorted(known_ids)))}"
        )


def clamp(provider: WantedProvider) -> tuple[WantedProvider, list[str], list[str]]:
    """Keep totals within what placement can store and reserves within totals; drop zero totals.

    :returns: the provider, errors, warnings.
    """
    errors, warnings = [], []
    inventory = {}
    for resource_class, record in provider.inventory.items():
        if record.total <= 0:
            continue
        if record.total > MAX_TOTAL:
            warnings.append(
                f"{provider.name} has {record.total} {resource_class}, more than placement can "
                f"store: {MAX_TOTAL} are reported"
            )
            record = replace(record, total=MAX_TOTAL)
        if record.reserved > record.total:
            errors.append(
                f"{provider.name} would reserve {record.reserved} of {record.total} "
                f"{resource_class}; lower the reserve (reserved_host_memory_mb, "
                "reserved_host_disk_mb, reserved_host_cpus, reserved_huge_pages) to what is there"
            )
            record = replace(record, reserved=record.total)
        inventory[resource_class] = record
    return replace(provider, inventory=inventory), errors, warnings


def _cpu_units(dedicated_cpus: Iterable[int]) -> dict[str, tuple[str, ...]]:
    return {"PCPU": tuple(str(cpu) for cpu in sorted(dedicated_cpus))}


def _traits_of_cpus(topology: HostTopology, inventory: dict[str, WantedRecord]) -> dict[str, bool]:
    """Traits of CPUs go where CPUs are counted and nowhere else."""
    if not any(rc in inventory and inventory[rc].total for rc in ("VCPU", "PCPU")):
        return dict.fromkeys(known_cpu_traits(), False)
    return cpu_traits(topology.cpu_model, hyperthreading=topology.hyperthreading)


def lay_out_memory_encryption(
    root_name: str, topology: HostTopology, options: LayoutOptions
) -> Iterator[WantedProvider]:
    """Lay out every kind that has contexts.

    SEV-ES and SEV-SNP draw on the same address space identifiers, so where SNP is there, ES is not
    offered.
    """
    for model, contexts in _contexts(topology.memory_encryption, options).items():
        if contexts > 0:
            yield WantedProvider(
                encryption_key(model),
                names.memory_encryption_name(root_name, model),
                inventory={ENCRYPTION_CLASS: WantedRecord(contexts, max_unit=1)},
                traits=frozenset({ENCRYPTION_TRAITS[model]}),
            )


def _contexts(facts: MemoryEncryption, options: LayoutOptions) -> dict[str, int]:
    capacity = dict(facts.capacity)
    contexts = {}
    if facts.amd_sev:
        contexts["amd_sev"] = capacity.get("sev", 0)
    if facts.amd_sev_snp:
        contexts["amd_sev_snp"] = capacity.get("sev_es", 0)
    elif facts.amd_sev_es:
        contexts["amd_sev_es"] = capacity.get("sev_es", 0)
    if facts.intel_tdx:
        keys, wanted_count = capacity.get("tdx"), options.tdx_guests
        counts = [count for count in (keys, wanted_count) if count is not None]
        contexts["intel_tdx"] = min(counts, default=0)
    return contexts
