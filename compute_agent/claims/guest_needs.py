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
    allocated_amounts: Mapping[str, int],
    page_sizes: Collection[int],
) -> GuestNeeds:
    """Return the NUMA nodes of a guest.

    :param spec: the request specification; without a flavor the guest is one node of what was
        allocated, which may lie on several cells.
    :param allocated_amounts: amounts of ``VCPU``, ``PCPU`` and ``MEMORY_MB`` on this host.
    :param page_sizes: sizes in KiB of the huge pages of the host.
    :raises InvalidInput: the flavor cannot be read.
    :raises ComputeResourcesUnavailable: it needs other CPUs than were allocated.
    """
    whole = NodeNeed(
        allocated_amounts.get("VCPU", 0),
        allocated_amounts.get("PCPU", 0),
        allocated_amounts.get("MEMORY_MB", 0),
    )
    if not spec.get("flavor"):
        return GuestNeeds((whole,))
    request_spec, numa = _read(instance, spec, page_sizes)
    networks = request_spec.requested_networks
    physnets = frozenset(network.physnet for network in networks if network.physnet)
    needs_tunnel = any(network.is_tunneled for network in networks)
    if not numa.names_nodes:
        return GuestNeeds((whole,), physnets=physnets, needs_tunnel=needs_tunnel)
    sizes = _sizes(numa)
    nodes = [NodeNeed(node.vcpu, node.pcpu, node.memory_mb, sizes) for node in numa.nodes]
    return GuestNeeds(
        _as_allocated(instance, nodes, whole),
        names_nodes=True,
        physnets=physnets,
        needs_tunnel=needs_tunnel,
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

    read_fields = {name: spec[name] for name in READ_FIELDS if spec.get(name) is not None}
    known_traits = [f"{PAGE_SIZE_PREFIX}{size}" for size in sorted(page_sizes)]
    try:
        request_spec = read_spec({**read_fields, "project_id": "-", "user_id": "-"})
        shared_count, pinned_count = flavor_settings.pinned_cpus(
            request_spec, request_spec.flavor.vcpus
        )
        return request_spec, guest_numa(
            request_spec, shared_count, pinned_count, request_spec.flavor.memory_mb, known_traits
        )
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
    shared_count, pinned_count = sum(n.vcpus for n in nodes), sum(n.pinned_count for n in nodes)
    if (shared_count, pinned_count) == (whole.vcpus, whole.pinned_count):
        return tuple(nodes)
    if (0, shared_count + pinned_count) == (whole.vcpus, whole.pinned_count):
        return tuple(n._replace(vcpus=0, pinned_count=n.vcpus + n.pinned_count) for n in nodes)
    if (shared_count + pinned_count, 0) == (whole.vcpus, whole.pinned_count):
        return tuple(n._replace(vcpus=n.vcpus + n.pinned_count, pinned_count=0) for n in nodes)
    raise errors.ComputeResourcesUnavailable(
        f"The NUMA nodes of {instance} have {shared_count} shared and {pinned_count} pinned CPUs, "
        f"and {whole.vcpus} VCPU and {whole.pinned_count} PCPU are allocated for it on this host. "
        "Schedule the instance again."
    )
