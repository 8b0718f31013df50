"""The NUMA cells: which CPUs and how much memory are near each other.

Node numbers have gaps on real machines, nodes may lack CPUs (CXL, PMEM, GPU memory) or memory, and
a container may be shown the numbers of nodes whose directories it does not have. A kernel built
without NUMA, and most small machines of other architectures, have no directory at all: that is one
cell.

Source: Documentation/ABI/stable/sysfs-devices-node.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from msgspec.structs import replace

from compute_agent.discovery import cpu_list
from compute_agent.discovery.errors import DiscoveryError, FactMalformed
from compute_agent.discovery.facts import MEMORY_TOLERANCE, CellId, CpuId, NumaCell
from compute_agent.discovery.sysfs import memory
from compute_agent.discovery.sysfs.cpus import Cpus
from compute_agent.discovery.sysfs.reader import Machine

NODES = "devices/system/node"
ONLINE = f"{NODES}/online"
CPULIST = "cpulist"
MEMINFO = "meminfo"
DISTANCE = "distance"

_CPU_LINK = re.compile(r"cpu(\d+)")
_NODE_DIRECTORY = re.compile(r"node(\d+)")


def discover(machine: Machine, cpus: Cpus, memory_kib: int) -> tuple[NumaCell, ...]:
    """Read the cells; `cpus` and `memory_kib` make the one cell where there are none."""
    nodes, online = _nodes(machine), cpus.online
    offline = frozenset(cpus.present).difference(online)
    readable = []
    for node in nodes:
        try:
            readable.append(_cell(machine, node, nodes, online, offline))
        except DiscoveryError as error:
            machine.warn(f"{error}; NUMA node {node} left out")
    cells, claimed_twice = each_cpu_once(readable)
    for node, twice in claimed_twice.items():
        machine.warn(
            f"{machine.sys.path(NODES)}/node{node}/{CPULIST} claims CPUs {cpu_list.write(twice)} "
            "of a node before it; they stay there"
        )
    orphans = set(online).difference(*(cell.cpus for cell in cells))
    if cells and orphans:
        machine.warn(
            f"CPUs {cpu_list.write(orphans)} are online and on none of the nodes in "
            f"{machine.sys.path(NODES)}"
        )
    if cells:
        # they differ in containers, and in guests with memory plugged in
        together = sum(cell.memory_kib for cell in cells)
        if abs(together - memory_kib) * MEMORY_TOLERANCE > memory_kib:
            machine.warn(
                f"the nodes in {machine.sys.path(NODES)} have {together} KiB of memory together,"
                f" {machine.proc.path(memory.MEMINFO)} has {memory_kib} KiB; each cell keeps what"
                " its node has, and a host that is reported without cells has the latter"
            )
        return cells
    huge = memory.huge_pages(machine, memory.HOST_HUGE_PAGES)
    distances = ((CellId(0), 10),)
    return (
        NumaCell(
            CellId(0), online, memory_kib, huge, distances, offline_cpus=tuple(sorted(offline))
        ),
    )


def _nodes(machine: Machine) -> tuple[CellId, ...]:
    matches = (_NODE_DIRECTORY.fullmatch(name) for name in machine.sys.names(NODES))
    shown_ids = {int(match[1]) for match in matches if match}
    text = machine.sys.optional_text(ONLINE)
    if text is None:
        return tuple(CellId(node) for node in sorted(shown_ids))
    try:
        online = set(cpu_list.parse(text))
    except ValueError as error:
        machine.warn(f"{machine.sys.path(ONLINE)} is not a list of nodes: {error}; ignored")
        online = shown_ids
    for node in sorted(online - shown_ids):
        machine.warn(
            f"{machine.sys.path(ONLINE)} names node {node}, whose directory does not exist; ignored"
        )
    return tuple(CellId(node) for node in sorted(online & shown_ids))


def _cell(
    machine: Machine,
    node: CellId,
    nodes: tuple[CellId, ...],
    online: tuple[CpuId, ...],
    offline: frozenset[CpuId],
) -> NumaCell:
    here = f"{NODES}/node{node}"
    text = machine.sys.text(f"{here}/{CPULIST}")
    try:
        cpus = frozenset(cpu_list.parse(text))
    except ValueError as error:
        path = machine.sys.path(f"{here}/{CPULIST}")
        raise FactMalformed(path, text, f"a list of CPUs ({error})") from error
    # the links stay while the CPUs are offline
    links = map(_CPU_LINK.fullmatch, machine.sys.names(here) if offline else ())
    linked_cpus = [CpuId(int(link[1])) for link in links if link]
    return NumaCell(
        id=node,
        cpus=tuple(cpu for cpu in online if cpu in cpus),
        memory_kib=memory.total_kib(
            machine.sys.text(f"{here}/{MEMINFO}"), machine.sys.path(f"{here}/{MEMINFO}")
        ),
        huge_pages=memory.huge_pages(machine, f"{here}/{memory.NODE_HUGE_PAGES}"),
        distances=_distances(machine, here, nodes),
        offline_cpus=tuple(sorted(offline.intersection(linked_cpus))),
    )


def _distances(
    machine: Machine, here: str, nodes: tuple[CellId, ...]
) -> tuple[tuple[CellId, int], ...]:
    """One number per online node, ascending: the kernel leaves gaps out, so must we."""
    text = machine.sys.optional_text(f"{here}/{DISTANCE}")
    if text is None:
        return ()
    try:
        numbers = [int(word) for word in text.split()]
        return tuple(zip(nodes, numbers, strict=True))
    except ValueError:
        path = machine.sys.path(f"{here}/{DISTANCE}")
        machine.warn(
            f"{path} holds {text[:80]!r}, expected {len(nodes)} numbers, one for each online node;"
            " distances are unknown"
        )
        return ()


def each_cpu_once(
    cells: Collection[NumaCell],
) -> tuple[tuple[NumaCell, ...], dict[CellId, list[CpuId]]]:
    """Return the cells with each CPU in the first that claims it, and distances among them.

    Also the CPUs that a cell claims of one before it, by cell: with `numa=fake` all have all.
    """
    ids = frozenset(cell.id for cell in cells)
    taken_cpus: set[CpuId] = set()
    result: list[NumaCell] = []
    claimed_twice: dict[CellId, list[CpuId]] = {}
    for cell in cells:
        if twice := taken_cpus.intersection(cell.cpus):
            claimed_twice[cell.id] = sorted(twice)
        own = tuple(cpu for cpu in cell.cpus if cpu not in taken_cpus)
        taken_cpus.update(own)
        distances = tuple(pair for pair in cell.distances if pair[0] in ids)
        result.append(replace(cell, cpus=own, distances=distances))
    return tuple(result), claimed_twice
