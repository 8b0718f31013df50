"""Needs of a guest: the nodes that its flavor names, within what was allocated for it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from compute_agent import errors
from compute_agent.fitting.guest import Guest, Node, Wish

if TYPE_CHECKING:
    from compute_agent.placement.allocations.amounts import Amounts
    from compute_agent.request.pci_aliases import PciAlias
    from compute_agent.request.spec import RequestSpec

READ_FIELDS = (
    *("flavor", "image", "is_bfv", "numa_topology", "requested_networks", "pci_requests"),
)


class Allocation(Struct, frozen=True):
    """What is allocated for a guest on this host.

    :param cells: by cell that placement counts; empty on a flat host.
    :param devices: units of providers and classes that have names.
    """

    vcpus: int
    pinned: int
    memory_mib: int
    cells: Mapping[int, Node]
    devices: Sequence[tuple[str, str, int]]

    @classmethod
    def of(
        cls,
        amounts: Amounts,
        cells: Mapping[int, Node],
        named: Collection[tuple[str, str]],
    ) -> Allocation:
        """Return the sums of amounts.

        :param named: providers and classes that have named units, other than CPUs of cells.
        """

        def total(name: str) -> int:
            return sum(classes.get(name, 0) for classes in amounts.values())

        return cls(
            total("VCPU"),
            total("PCPU"),
            total("MEMORY_MB"),
            cells,
            [
                (provider, resource_class, amount)
                for provider, classes in sorted(amounts.items())
                for resource_class, amount in sorted(classes.items())
                if (provider, resource_class) in named
            ],
        )


def guest_of(
    instance: str,
    spec: Mapping[str, Any],
    allocation: Allocation,
    page_sizes: Collection[int],
    aliases: Sequence[tuple[str, PciAlias]] = (),
) -> Guest:
    """Return what a guest needs.

    :param spec: the request specification; without a flavor the guest is what was allocated, which
        may lie on several cells.
    :param page_sizes: sizes in KiB of the huge pages of the host.
    :param aliases: of PCI devices, for how near these must be.
    :raises InvalidInput: the flavor cannot be read.
    :raises ComputeResourcesUnavailable: it needs other CPUs than were allocated.
    """
    if not spec.get("flavor"):
        return _unnamed(allocation, Guest(wishes=tuple(_wishes(allocation, {}))))
    request_spec, guest = _read(instance, spec, page_sizes, () if allocation.cells else page_sizes)
    guest = replace(guest, wishes=tuple(_wishes(allocation, _policies(request_spec, aliases))))
    if not guest.names_nodes:
        return _unnamed(allocation, guest, min(guest.nodes[0].emulator_cpus, allocation.pinned))
    return replace(guest, nodes=_as_allocated(instance, guest.nodes, allocation))


def _unnamed(allocation: Allocation, guest: Guest, emulator_cpus: int = 0) -> Guest:
    """Return a guest that names no nodes.

    Where placement counts cells it has just what it was allocated of each.
    """
    if not allocation.cells:
        whole = Node(allocation.vcpus, allocation.pinned, allocation.memory_mib)
        return replace(
            guest,
            nodes=(_with_emulator(whole, emulator_cpus),),
            names_nodes=False,
            floats=not allocation.pinned,
        )
    nodes = list(allocation.cells.values())
    first = next((index for index, node in enumerate(nodes) if node.pinned), 0)
    nodes[first] = _with_emulator(nodes[first], emulator_cpus)
    return replace(guest, nodes=tuple(nodes), names_nodes=True, floats=False)


def _with_emulator(node: Node, emulator_cpus: int) -> Node:
    """Return a node of whose CPUs one is for the threads of the emulator."""
    return replace(node, pinned=node.pinned - emulator_cpus, emulator_cpus=emulator_cpus)


def _read(
    instance: str,
    spec: Mapping[str, Any],
    page_sizes: Collection[int],
    any_sizes: Collection[int],
) -> tuple[RequestSpec, Guest]:
    # loaded with the first claim that has a flavor: an agent without claims does without
    from compute_agent.provider_tree.trait_names import PAGE_SIZE_PREFIX
    from compute_agent.request import flavor_settings
    from compute_agent.request.guest_numa import guest_numa, planned_guest

    known_traits = [f"{PAGE_SIZE_PREFIX}{size}" for size in sorted(page_sizes)]
    with readable(instance):
        request_spec = spec_of(spec)
        vcpus = request_spec.flavor.vcpus
        shared_count, pinned_count = flavor_settings.pinned_cpus(request_spec, vcpus)
        numa = guest_numa(
            request_spec, shared_count, pinned_count, request_spec.flavor.memory_mb, known_traits
        )
        return request_spec, planned_guest(request_spec, numa, any_sizes)


def spec_of(spec: Mapping[str, Any], read_fields: Collection[str] = READ_FIELDS) -> RequestSpec:
    """Return what a claim reads of a request specification, of any project."""
    # likewise
    from compute_agent.request.spec_reader import read_spec

    fields = {name: spec[name] for name in read_fields if spec.get(name) is not None}
    return read_spec({**fields, "project_id": "-", "user_id": "-"})


@contextmanager
def readable(instance: str) -> Iterator[None]:
    """Cover the reading of a flavor.

    :raises InvalidInput: it cannot be read.
    """
    from compute_agent.request.errors import SchedulerError

    try:
        yield
    except SchedulerError as error:
        raise errors.InvalidInput(f"The flavor of {instance} cannot be read: {error}") from error


def _policies(spec: RequestSpec, aliases: Sequence[tuple[str, PciAlias]]) -> Mapping[str, str]:
    """Return how near devices must be, by class; "" for classes that are not named."""
    # with the rest of the request: see above
    from compute_agent.request.flavor import device_aliases
    from compute_agent.request.guest_numa import SETTING, has_nodes

    setting = spec.setting(SETTING)
    if setting is not None:
        return {"": setting}
    if not has_nodes(spec):
        return {}
    names = set(device_aliases(spec).values())
    return {alias.resource_class: alias.numa_policy for name, alias in aliases if name in names}


def wishes_of(
    instance: str, spec: Mapping[str, Any], aliases: Sequence[tuple[str, PciAlias]]
) -> tuple[Mapping[str, int], list[Wish]]:
    """Return what a request asks for by class, and the devices among it.

    :raises InvalidInput: the flavor cannot be read.
    """
    from compute_agent.request.candidate_request import UNSUFFIXED
    from compute_agent.request.flavor import RequestOptions, request_of
    from compute_agent.request.guest_numa import is_device, policies

    with readable(instance):
        request_spec = spec_of(spec)
        request = request_of(request_spec, RequestOptions(pci_aliases=dict(aliases)))
    classes = {suffix: group.resources for suffix, group in request.groups.items()}
    policy_of = policies(request_spec, dict(aliases), classes)
    return request.resources, [
        Wish(
            suffix or "the flavor",
            name,
            amount,
            group.required if suffix != UNSUFFIXED else frozenset(),
            group.forbidden if suffix != UNSUFFIXED else frozenset(),
            policy_of.get(suffix, ""),
        )
        for suffix, group in sorted(request.groups.items())
        for name, amount in sorted(group.resources.items())
        if is_device(name)
    ]


def _wishes(allocation: Allocation, policies: Mapping[str, str]) -> Iterator[Wish]:
    default = policies.get("", "")
    for provider, resource_class, amount in allocation.devices:
        yield Wish(
            f"{provider} {resource_class}",
            resource_class,
            amount,
            nearness=policies.get(resource_class, default),
            devices=frozenset((provider,)),
        )


def _as_allocated(
    instance: str, nodes: tuple[Node, ...], allocation: Allocation
) -> tuple[Node, ...]:
    """Return the nodes with the kind of CPUs that was allocated, where it is all of one kind.

    A flavor may name PCPU outright, and a host without dedicated CPUs may have given VCPU.
    """
    shared_count = sum(n.vcpus for n in nodes)
    pinned_count = sum(n.pinned + n.emulator_cpus for n in nodes)
    given = allocation.vcpus, allocation.pinned
    if (shared_count, pinned_count) == given:
        return nodes
    if (0, shared_count + pinned_count) == given:
        return tuple(replace(n, vcpus=0, pinned=n.vcpus + n.pinned) for n in nodes)
    if (shared_count + pinned_count, 0) == given:
        return tuple(
            replace(n, vcpus=n.vcpus + n.pinned + n.emulator_cpus, pinned=0, emulator_cpus=0)
            for n in nodes
        )
    raise errors.ComputeResourcesUnavailable(
        f"The NUMA nodes of {instance} have {shared_count} shared and {pinned_count} pinned CPUs, "
        f"and {allocation.vcpus} VCPU and {allocation.pinned} PCPU are allocated for it on this "
        "host. Schedule the instance again."
    )
