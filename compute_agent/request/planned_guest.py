"""The guest of a specification as the planner sees it, without its devices."""

from __future__ import annotations

from collections.abc import Collection

from compute_agent.fitting.guest import ORDINARY_PAGES, Guest, Node
from compute_agent.fitting.host import ORDINARY
from compute_agent.provider_tree.trait_names import PAGE_SIZE_PREFIX
from compute_agent.request.guest_numa import GuestNuma
from compute_agent.request.spec import RequestSpec


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
        nodes[0] = first._replace(pinned=first.pinned - 1, emulator_cpus=1)
    networks = spec.requested_networks
    return Guest(
        tuple(nodes),
        names_nodes=numa.names_nodes,
        floats=not (numa.names_nodes or any(node.pcpu for node in numa.nodes)),
        threads=spec.setting("hw:cpu_thread_policy") or "",
        physnets=frozenset(network.physnet for network in networks if network.physnet),
        needs_tunnel=any(network.is_tunneled for network in networks),
    )
