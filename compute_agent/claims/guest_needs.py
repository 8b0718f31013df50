"""The NUMA nodes that a claim asks for: what its flavor says, within what was allocated."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from compute_agent import errors
from compute_agent.claims.numa_fit import GuestNeeds, NodeNeed

if TYPE_CHECKING:
    from compute_agent.request.guest_numa import GuestNuma
    from compute_agent.request.spec import RequestSpec

READ_FIELDS = ("flavor", "image", "is_bfv", "numa_topology", "requested_networks")


def guest_needs(
    instance: str,
    spec: Mapping[str, Any],
    allocated: Mapping[str, int],
    page_sizes: Collection[int],
) -> GuestNeeds:
    """Return the NUMA nodes of a guest.

    :param spec: the request specification; without a flavor the guest is one node of what was
        allocated, which may lie on several cells.
    :param allocated: amounts of ``VCPU``, ``PCPU`` and ``MEMORY_MB`` on this host.
    :param page_sizes: sizes in KiB of the huge pages of the host.
    :raises InvalidInput: the flavor cannot be read.
    :raises ComputeResourcesUnavailable: it needs other CPUs than were allocated.
    """
    whole = NodeNeed(
        allocated.get("VCPU", 0), allocated.get("PCPU", 0), allocated.get("MEMORY_MB", 0)
    )
    if not spec.get("flavor"):
        return GuestNeeds((whole,))
    read, numa = _read(instance, spec, page_sizes)
    networks = read.requested_networks
    physnets = frozenset(network.physnet for network in networks if network.physnet)
    tunneled = any(network.tunneled for network in networks)
    if not numa.names_nodes:
        return GuestNeeds((whole,), physnets=physnets, tunneled=tunneled)
    sizes = _sizes(numa)
    nodes = [NodeNeed(node.vcpu, node.pcpu, node.memory_mb, sizes) for node in numa.nodes]
    return GuestNeeds(
        _as_allocated(instance, nodes, whole),
        names_nodes=True,
        physnets=physnets,
        tunneled=tunneled,
    )


def _read(
    instance: str, spec: Mapping[str, Any], page_sizes: Collection[int]
) -> tuple[RequestSpec, GuestNuma]:
    # loaded with the first claim that has a flavor: an agent without claims does without
    from compute_agent.provider_tree.trait_names import PAGE_SIZE_PREFIX
    from compute_agent.request import flavor_settings
    from compute_agent.request.errors import SchedulerError
    from compute_agent.request.guest_numa import guest_numa
    from compute_agent.request.spec_reader import read_spec

    said = {name: spec[name] for name in READ_FIELDS if spec.get(name) is not None}
    known_traits = [f"{PAGE_SIZE_PREFIX}{size}" for size in sorted(page_sizes)]
    try:
        read = read_spec({**said, "project_id": "-", "user_id": "-"})
        shared, pinned = flavor_settings.pinned_cpus(read, read.flavor.vcpus)
        return read, guest_numa(read, shared, pinned, read.flavor.memory_mb, known_traits)
    except SchedulerError as error:
        raise errors.InvalidInput(f"The flavor of {instance} cannot be read: {error}") from error


def _sizes(numa: GuestNuma) -> frozenset[int]:
    return frozenset(int(trait.rpartition("_")[2]) for trait in numa.page_traits)


def _as_allocated(
    instance: str, nodes: Sequence[NodeNeed], whole: NodeNeed
) -> tuple[NodeNeed, ...]:
    """Return the nodes with the kind of CPUs that was allocated, where it is all of one kind.

    A flavor may name PCPU outright, and a host without dedicated CPUs may have given VCPU.
    """
    shared, pinned = sum(n.vcpus for n in nodes), sum(n.pinned for n in nodes)
    if (shared, pinned) == (whole.vcpus, whole.pinned):
        return tuple(nodes)
    if (0, shared + pinned) == (whole.vcpus, whole.pinned):
        return tuple(n._replace(vcpus=0, pinned=n.vcpus + n.pinned) for n in nodes)
    if (shared + pinned, 0) == (whole.vcpus, whole.pinned):
        return tuple(n._replace(vcpus=n.vcpus + n.pinned, pinned=0) for n in nodes)
    raise errors.ComputeResourcesUnavailable(
        f"The NUMA nodes of {instance} have {shared} shared and {pinned} pinned CPUs, and "
        f"{whole.vcpus} VCPU and {whole.pinned} PCPU are allocated for it on this host. Schedule "
        "the instance again."
    )
