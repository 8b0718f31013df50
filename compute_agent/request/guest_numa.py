"""NUMA nodes of a guest: their number, CPUs, memory and page size.

hw:numa_nodes = N               number of nodes; with equal shares by default
hw:numa_cpus.I, hw:numa_mem.I   vCPU numbers, and MiB, of node I
hw:mem_page_size                small, large, any, or a size (KiB, or with a unit)
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from compute_agent.programs.whole_numbers import whole_number
from compute_agent.provider_tree.trait_names import PAGE_SIZE_PREFIX
from compute_agent.request import flavor_settings
from compute_agent.request.errors import InvalidRequest
from compute_agent.request.extra_specs import amount
from compute_agent.request.spec import RequestSpec

_SMALL_PAGE = 4
"""KiB of a page that every host has."""
_UNITS = {"": 1, "K": 1, "KB": 1, "KIB": 1, "M": 1024, "MB": 1024, "MIB": 1024}
_UNITS |= {"G": 1024**2, "GB": 1024**2, "GIB": 1024**2}


@dataclass(frozen=True, slots=True)
class GuestNode:
    """Needs of one NUMA node of the guest; memory in MiB."""

    vcpu: int
    pcpu: int
    memory_mb: int


@dataclass(frozen=True, slots=True)
class GuestNuma:
    """The guest's NUMA nodes.

    :param nodes: one entry per node, in order.
    :param names_nodes: whether the request named NUMA nodes; otherwise there is one, which may be
        split.
    :param page_traits: traits of which a provider of the memory must have one; empty for memory on
        pages of the usual size.
    """

    nodes: tuple[GuestNode, ...]
    names_nodes: bool = False
    page_traits: frozenset[str] = frozenset()


def guest_numa(
    spec: RequestSpec, vcpu: int, pcpu: int, memory_mb: int, known_traits: Collection[str] = ()
) -> GuestNuma:
    """Distribute the guest's CPUs and memory over its NUMA nodes.

    :param vcpu: shared CPUs of the whole guest, likewise `pcpu` and `memory_mb`.
    :param known_traits: page-size traits that placement knows, for ``hw:mem_page_size=large``.
    :raises InvalidRequest: nodes that do not add up, or a page size that does not exist.
    """
    pages = _page_traits(spec, known_traits)
    text = spec.setting("hw:numa_nodes")
    if spec.guest_cells and text is None:
        return _as_given(spec, vcpu, pcpu, memory_mb, pages)
    if text is None:
        whole = GuestNode(vcpu, pcpu, memory_mb)
        return GuestNuma((whole,), bool(pages), pages)
    count = amount("hw:numa_nodes", text)
    if count < 1 or count > vcpu + pcpu:
        raise InvalidRequest(
            "hw:numa_nodes", text, f"a number from 1 to {vcpu + pcpu}, the CPUs of the guest"
        )
    memory = _memory_shares(spec, count, memory_mb)
    shared_counts, pinned_counts = _cpu_shares(spec, count, vcpu, pcpu)
    nodes = tuple(map(GuestNode, shared_counts, pinned_counts, memory))
    return GuestNuma(nodes, True, pages)


def _as_given(
    spec: RequestSpec,
    vcpu: int,
    pcpu: int,
    memory_mb: int,
    pages: frozenset[str],
) -> GuestNuma:
    """Return the nodes that the caller computed, if they add up to the flavor."""
    cells = spec.guest_cells
    cpus = sum(cell.shared_cpus + cell.pinned_cpus for cell in cells)
    memory = sum(cell.memory_mb for cell in cells)
    pinned_counts = [cell.pinned_cpus for cell in cells]
    shared_counts = [cell.shared_cpus for cell in cells]
    if pcpu and not any(pinned_counts):
        # a policy of the flavor pins what the topology leaves open
        pinned_counts, shared_counts = shared_counts, [0] * len(cells)
    spare = vcpu + pcpu - cpus
    if spare not in (0, 1) or memory != memory_mb or sum(shared_counts) != vcpu:
        raise InvalidRequest(
            "numa_topology.cells",
            f"{cpus} CPUs and {memory} MiB",
            f"the {vcpu + pcpu} CPUs and {memory_mb} MiB of the flavor",
        )
    # a CPU for the emulator's own threads goes with the first node
    pinned_counts[0] += spare
    nodes = tuple(map(GuestNode, shared_counts, pinned_counts, (cell.memory_mb for cell in cells)))
    return GuestNuma(nodes, True, pages)


def _memory_shares(spec: RequestSpec, count: int, memory_mb: int) -> list[int]:
    settings = [spec.setting(f"hw:numa_mem.{i}") for i in range(count)]
    if all(value is None for value in settings):
        return _equal(memory_mb, count)
    shares = [amount(f"hw:numa_mem.{i}", value) for i, value in enumerate(settings)]
    if sum(shares) != memory_mb:
        raise InvalidRequest(
            "hw:numa_mem.*", "+".join(map(str, shares)), f"a sum of {memory_mb}, the memory in MiB"
        )
    return shares


def _cpu_shares(spec: RequestSpec, count: int, vcpu: int, pcpu: int) -> tuple[list[int], list[int]]:
    settings = [spec.setting(f"hw:numa_cpus.{i}") for i in range(count)]
    if all(value is None for value in settings):
        # a node needs a CPU of some kind: pinned ones fill up what the shared ones leave free
        total = _equal(vcpu + pcpu, count)
        shared_counts = _equal(vcpu, count)
        return shared_counts, [
            whole - part for whole, part in zip(total, shared_counts, strict=True)
        ]
    vcpus = spec.flavor.vcpus
    sets = [
        flavor_settings.cpu_mask(f"hw:numa_cpus.{i}", value or "", vcpus)
        for i, value in enumerate(settings)
    ]
    if sum(map(len, sets)) != vcpus or frozenset().union(*sets) != frozenset(range(vcpus)):
        raise InvalidRequest(
            "hw:numa_cpus.*",
            " ".join(value or "" for value in settings),
            f"each of {vcpus} CPUs once",
        )
    mask = spec.setting("hw:cpu_dedicated_mask")
    if vcpu and pcpu and mask is not None:
        pinned_cpus = flavor_settings.cpu_mask("hw:cpu_dedicated_mask", mask, vcpus)
    else:
        pinned_cpus = frozenset(range(vcpus)) if pcpu else frozenset()
    pinned_counts = [len(cpus & pinned_cpus) for cpus in sets]
    shared_counts = [len(cpus - pinned_cpus) for cpus in sets]
    # a CPU for the emulator's own threads goes with the first node
    pinned_counts[0] += pcpu - sum(pinned_counts)
    return shared_counts, pinned_counts


def _equal(total: int, count: int) -> list[int]:
    share, rest = divmod(total, count)
    return [share + (i < rest) for i in range(count)]


def _page_traits(spec: RequestSpec, known_traits: Collection[str]) -> frozenset[str]:
    text = spec.page_size
    if text is None or text in ("small", "any"):
        return frozenset()
    if text == "large":
        return frozenset(known_traits) or frozenset((f"{PAGE_SIZE_PREFIX}2048",))
    match = re.fullmatch(r"(\d+)\s*([A-Za-z]*)", text)
    size = whole_number(match[1]) if match else None
    if not match or match[2].upper() not in _UNITS or not size:
        raise InvalidRequest(
            "hw:mem_page_size", text, "small, large, any, or a size such as 2048, 2MB, 1GB"
        )
    kib = size * _UNITS[match[2].upper()]
    return frozenset((f"{PAGE_SIZE_PREFIX}{kib}",)) if kib > _SMALL_PAGE else frozenset()
