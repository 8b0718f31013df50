"""NUMA nodes of a guest: their number, CPUs, memory and page size, and how near devices must be.

hw:numa_nodes = N               number of nodes; with equal shares by default
hw:numa_cpus.I, hw:numa_mem.I   vCPU numbers, and MiB, of node I
hw:mem_page_size                small, large, any, or a size (KiB, or with a unit)
hw:pci_numa_affinity_policy     where a device may be:

    required   below the cell of one of the guest's nodes
    legacy     there, or below no cell: it is not known where it is
    preferred  anywhere, there first
    socket     below a cell of the same socket; which cells share one only the host knows

The policy is for PCI devices and accelerators; without it an alias has a policy of its own, for
guests with NUMA nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace
from oslo_utils import strutils

from compute_agent.fitting.guest import ORDINARY_PAGES, Guest, Node
from compute_agent.fitting.host import ORDINARY
from compute_agent.provider_tree.trait_names import PAGE_SIZE_PREFIX
from compute_agent.request import flavor, flavor_settings
from compute_agent.request.candidate_request import UNSUFFIXED
from compute_agent.request.errors import InvalidRequest
from compute_agent.request.extra_specs import amount
from compute_agent.request.pci_aliases import PciAlias
from compute_agent.request.spec import RequestSpec

_SMALL_PAGE = 4
"""KiB of a page that every host has."""


class GuestNode(Struct, frozen=True):
    """Needs of one NUMA node of the guest; memory in MiB."""

    vcpu: int
    pcpu: int
    memory_mb: int


class GuestNuma(Struct, frozen=True):
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
    :param known_traits: page-size traits that placement knows, for `hw:mem_page_size=large`.
    :raises InvalidRequest: nodes that do not add up, or a page size that does not exist.
    """
    pages = _page_traits(spec, known_traits)
    text = spec.setting("hw:numa_nodes")
    if spec.guest_cells and text is None:
        return _as_given(spec, vcpu, pcpu, memory_mb, pages)
    if text is None:
        if pcpu or spec.page_size is not None or spec.flavor_setting("hw:pmem") is not None:
            # of one node, whose shares are everything
            _shares(spec, 1, memory_mb)
        whole = GuestNode(vcpu, pcpu, memory_mb)
        return GuestNuma((whole,), bool(pages), pages)
    count = amount("hw:numa_nodes", text)
    if count < 1:
        raise InvalidRequest("hw:numa_nodes", text, "a number of at least 1")
    cpu_sets, memory = _shares(spec, count, memory_mb)
    shared_counts, pinned_counts = _cpu_shares(spec, cpu_sets, vcpu, pcpu)
    nodes = tuple(map(GuestNode, shared_counts, pinned_counts, memory))
    return GuestNuma(nodes, True, pages)


def _as_given(
    spec: RequestSpec,
    vcpu: int,
    pcpu: int,
    memory_mb: int,
    pages: frozenset[str],
) -> GuestNuma:
    """Return the nodes that the caller computed, if they add up to the flavor.

    Where the flavor names other amounts than its size, these are distributed equally.
    """
    cells, flavor = spec.guest_cells, spec.flavor
    shares = [cell.memory_mb for cell in cells]
    pinned_counts = [cell.pinned_cpus for cell in cells]
    shared_counts = [cell.shared_cpus for cell in cells]
    cpus, memory = sum(pinned_counts) + sum(shared_counts), sum(shares)
    if memory != memory_mb and memory == flavor.memory_mb:
        shares = _equal(memory_mb, len(cells))
    if pcpu and not any(pinned_counts):
        # a policy of the flavor pins what the topology leaves open
        pinned_counts, shared_counts = shared_counts, [0] * len(cells)
    spare = vcpu + pcpu - cpus
    if cpus == flavor.vcpus and (spare not in (0, 1) or sum(shared_counts) != vcpu):
        pinned_counts, shared_counts = _equal(pcpu, len(cells)), _equal(vcpu, len(cells))
        spare = 0
    if spare not in (0, 1) or sum(shares) != memory_mb or sum(shared_counts) != vcpu:
        raise InvalidRequest(
            "numa_topology.cells",
            f"{cpus} CPUs and {memory} MiB",
            f"the {vcpu + pcpu} CPUs and {memory_mb} MiB of the flavor",
        )
    # a CPU for the emulator's own threads goes with the first node
    pinned_counts[0] += spare
    return GuestNuma(tuple(map(GuestNode, shared_counts, pinned_counts, shares)), True, pages)


def _shares(
    spec: RequestSpec, count: int, memory_mb: int
) -> tuple[Sequence[Collection[int]], Sequence[int]]:
    """Return the vCPU numbers and the MiB of each node: as written, else equal shares."""
    vcpus = spec.flavor.vcpus
    masks = [spec.setting(f"hw:numa_cpus.{node}") for node in range(count)]
    sizes = [spec.setting(f"hw:numa_mem.{node}") for node in range(count)]
    if not any((*masks, *sizes)):
        if vcpus % count or memory_mb % count:
            raise InvalidRequest(
                "hw:numa_nodes",
                count,
                f"a number that divides {vcpus} CPUs and {memory_mb} MiB, or hw:numa_cpus.N and "
                "hw:numa_mem.N for each node",
            )
        width = vcpus // count
        ranges = [range(node * width, (node + 1) * width) for node in range(count)]
        return ranges, [memory_mb // count] * count
    for kind, values in (("cpus", masks), ("mem", sizes)):
        for node, value in enumerate(values):
            if value is None:
                raise InvalidRequest(
                    f"hw:numa_{kind}.{node}", None, f"CPUs and memory of each of {count} nodes"
                )
        further = spec.setting(f"hw:numa_{kind}.{count}")
        if further is not None:
            raise InvalidRequest(f"hw:numa_{kind}.{count}", further, f"{count} nodes, from 0 on")
    shares = [amount(f"hw:numa_mem.{node}", value) for node, value in enumerate(sizes)]
    if sum(shares) != memory_mb:
        raise InvalidRequest(
            "hw:numa_mem.*", "+".join(map(str, shares)), f"a sum of {memory_mb}, the memory in MiB"
        )
    sets = [
        flavor_settings.cpu_mask(f"hw:numa_cpus.{node}", value or "", vcpus)
        for node, value in enumerate(masks)
    ]
    if sum(map(len, sets)) != vcpus or frozenset().union(*sets) != frozenset(range(vcpus)):
        raise InvalidRequest(
            "hw:numa_cpus.*", " ".join(map(str, masks)), f"each of {vcpus} CPUs once"
        )
    return sets, shares


def _cpu_shares(
    spec: RequestSpec, cpu_sets: Sequence[Collection[int]], vcpu: int, pcpu: int
) -> tuple[list[int], list[int]]:
    """Return how many shared and pinned CPUs each node has."""
    vcpus = spec.flavor.vcpus
    if not vcpus <= vcpu + pcpu <= vcpus + 1:
        # the flavor names other amounts than its size
        return _equal(vcpu, len(cpu_sets)), _equal(pcpu, len(cpu_sets))
    if vcpu and pcpu:
        pinned_cpus = flavor_settings.dedicated_cpus(spec, vcpus)
    else:
        pinned_cpus = frozenset(range(vcpus)) if pcpu else frozenset()
    pinned_counts = [len(pinned_cpus.intersection(cpus)) for cpus in cpu_sets]
    shared_counts = [len(cpus) - n for cpus, n in zip(cpu_sets, pinned_counts, strict=True)]
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
    try:
        if text.isdecimal():
            kib = int(text)
        else:
            # 2MB, 2.5 GiB, 1g, 16Mb (bits)
            size = text.replace(" ", "") + ("" if text[-1:] in "bB" else "B")
            kib = int(strutils.string_to_bytes(size, return_int=True)) // 1024
    except ValueError:
        kib = 0
    if kib < 1:
        raise InvalidRequest(
            "hw:mem_page_size", text, "small, large, any, or a size such as 2048, 2MB, 1GB"
        )
    return frozenset((f"{PAGE_SIZE_PREFIX}{kib}",)) if kib > _SMALL_PAGE else frozenset()


def planned_guest(
    spec: RequestSpec, numa: GuestNuma, any_sizes: Collection[int] = frozenset()
) -> Guest:
    """Return what a specification needs of a host.

    :param any_sizes: huge pages, in KiB, that `hw:mem_page_size = any` may have.
    """
    sizes = frozenset(int(name.removeprefix(PAGE_SIZE_PREFIX)) for name in numa.page_traits)
    if spec.page_size == "any":
        sizes = frozenset((ORDINARY, *any_sizes))
    sizes, names_pages = sizes or ORDINARY_PAGES, spec.page_size is not None
    nodes = [
        Node(node.vcpu, node.pcpu, node.memory_mb, sizes, names_pages=names_pages)
        for node in numa.nodes
    ]
    first = nodes[0]
    if first.pinned and spec.flavor_setting("hw:emulator_threads_policy") == "isolate":
        nodes[0] = replace(first, pinned=first.pinned - 1, emulator_cpus=1)
    networks = spec.requested_networks
    return Guest(
        tuple(nodes),
        names_nodes=numa.names_nodes,
        floats=not (numa.names_nodes or any(node.pcpu for node in numa.nodes)),
        threads=spec.setting("hw:cpu_thread_policy") or "",
        physnets=frozenset(network.physnet for network in networks if network.physnet),
        needs_tunnel=any(network.is_tunneled for network in networks),
    )


SETTING: Final = "hw:pci_numa_affinity_policy"

_PARTS_OF_HOSTS: Final = frozenset(("VCPU", "PCPU", "MEMORY_MB", "DISK_GB"))
_RATES: Final = ("NET_BW_", "NET_PACKET_RATE_")
_WITHOUT_PLACE: Final = "MEM_ENCRYPTION_CONTEXT"


def is_special(resource_class: str) -> bool:
    """Return whether only some hosts have units of a class: devices, and encrypted memory.

    Other classes are handed out in many small parts: kilobits per second would outnumber all
    devices.
    """
    return resource_class not in _PARTS_OF_HOSTS and not resource_class.startswith(_RATES)


def is_device(resource_class: str) -> bool:
    """Return whether units of a class are devices, which are near some NUMA cell or far from it."""
    return is_special(resource_class) and resource_class != _WITHOUT_PLACE


def has_nodes(spec: RequestSpec) -> bool:
    """Whether the guest has NUMA nodes: asked for, or since its CPUs or pages are its own."""
    settings = ("hw:numa_nodes", "hw:cpu_policy", "hw:mem_page_size")
    values = [spec.setting(name) for name in settings]
    return bool(spec.guest_cells) or any(value not in (None, "shared", "small") for value in values)


def policies(
    spec: RequestSpec,
    aliases: Mapping[str, PciAlias],
    classes: Mapping[str, Collection[str]],
) -> dict[str, str]:
    """Return the policy of each device that has one, by the suffix of its group.

    :param aliases: by name.
    :param classes: suffix to the resource classes of each group.
    """
    setting = spec.setting(SETTING)
    policy_of_alias = flavor.device_aliases(spec) if has_nodes(spec) else {}
    policy_of = {}
    for suffix in sorted(classes):
        if suffix == UNSUFFIXED or not (
            suffix in policy_of_alias or any(map(is_device, classes[suffix]))
        ):
            continue
        alias = aliases.get(policy_of_alias.get(suffix, ""))
        policy = setting or (alias.numa_policy if alias else None)
        if policy is not None:
            policy_of[suffix] = policy
    return policy_of
