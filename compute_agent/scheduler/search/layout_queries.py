"""Shapes in which one request is asked, so that it finds hosts of every layout.

A flat host has its CPUs and memory on the root, a nested one on a provider per NUMA cell (trait
HW_NUMA_ROOT). No single question fits both: on a nested host the unsuffixed group could take the
CPUs from one cell and the memory from another, or from huge pages.

    flat     the request as it is, for trees without NUMA cells
    nested   one group per NUMA node of the guest, each on one cell
    split    one CPU and one MiB in place of the real amounts; the planner then composes the rest
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from compute_agent.fitting.guest import REQUIRED
from compute_agent.provider_tree.trait_names import (
    COMPUTE_NODE,
    HW_NUMA_ROOT,
    STORAGE_PREFIX,
)
from compute_agent.request.candidate_request import (
    GUEST_CELL_SUFFIX,
    UNSUFFIXED,
    Apart,
    CandidateRequest,
    RequestGroup,
)
from compute_agent.request.errors import InvalidRequest
from compute_agent.request.flavor_settings import MEMORY_ENCRYPTION_TRAITS
from compute_agent.request.guest_numa import GuestNode, GuestNuma
from compute_agent.scheduler.placement.candidates import AllocationCandidates, Candidate, ancestry

CELL_CLASSES = ("VCPU", "PCPU", "MEMORY_MB")
CELL_GROUP = "_NUMA0"
"""Group of the guest's first NUMA node, the only one of a guest that names no nodes."""
HOST_GROUP = "_HOST"
"""Group without resources that holds what the host, not a cell, must be a member of."""
TRAIT_GROUP = "_TRAITS"
"""Group without resources for traits that may be on a cell as well as on a provider above it."""
_CELL_TRAIT_PREFIXES = ("HW_CPU_", "HW_NUMA_")


class LayoutQuery(Struct, frozen=True):
    """One question of several, and which candidates of its answer count."""

    name: str
    request: CandidateRequest
    guest_cells: int = 0

    def kept(self, answer: AllocationCandidates) -> AllocationCandidates:
        """Return the answer to this question with the candidates that may be used."""
        if self.name == "flat" and not (self.request.apart or answer.nested_roots):
            return answer
        candidates: Iterable[Candidate] = answer.candidates
        for pair in self.request.apart:
            candidates = [c for c in candidates if _is_apart(c, answer, pair)]
        if self.name == "flat":
            nested_roots = answer.nested_roots
            if nested_roots:
                candidates = [c for c in candidates if c.root not in nested_roots]
        else:
            # each node of the guest on a cell of its own
            candidates = [c for c in candidates if len(set(c.guest_cells)) == len(c.guest_cells)]
        return AllocationCandidates(tuple(candidates), answer.providers, answer.returned_count)


def shapes(
    request: CandidateRequest, numa: GuestNuma, policy_of: Mapping[str, str]
) -> tuple[LayoutQuery, ...]:
    """Return the shapes to ask at once: flat and nested, or the request alone if it has no CPUs.

    Devices that must be near a guest of one node are asked for below its cell; of several nodes
    the planner says which.

    :param policy_of: how near the device of a group must be, by its suffix.
    :raises InvalidRequest: same_subtree names a guest NUMA node that there is not.
    """
    if not asks_for_cells(request):
        return (LayoutQuery("plain", _without_guest_nodes(request, strict=True)),)
    flat = _without_guest_nodes(request, strict=False)
    group = flat.group(UNSUFFIXED)
    flat = flat.with_group(UNSUFFIXED, group.forbidding(HW_NUMA_ROOT))
    nested = nested_request(request, numa)
    if len(numa.nodes) == 1:
        placed = set().union(*request.same_subtree)
        near = [name for name, policy in policy_of.items() if policy == REQUIRED]
        below = {frozenset((name, CELL_GROUP)) for name in near if name not in placed}
        nested = replace(nested, same_subtree=nested.same_subtree | below)
    return LayoutQuery("flat", flat), LayoutQuery("nested", nested, len(numa.nodes))


def asks_for_cells(request: CandidateRequest) -> bool:
    """Whether the unsuffixed group asks for anything that a NUMA cell has."""
    return any(name in request.group(UNSUFFIXED).resources for name in CELL_CLASSES)


def split_shape(request: CandidateRequest, numa: GuestNuma) -> LayoutQuery | None:
    """Return the question that finds trees with any room at all, for `HostPlans.over_cells`.

    `None` when the guest must not be laid over several cells: it has nothing of a cell, it names
    its NUMA nodes, or something must be in the subtree of its cell, or outside of it.

    """
    if numa.names_nodes or not asks_for_cells(request):
        return None
    whole = numa.nodes[0]
    one_of_each = GuestNode(min(whole.vcpu, 1), min(whole.pcpu, 1), min(whole.memory_mb, 1))
    probe = nested_request(request, replace(numa, nodes=(one_of_each,)))
    added_here = {frozenset((suffix, CELL_GROUP)) for suffix in (HOST_GROUP, TRAIT_GROUP)}
    relations = [*(probe.same_subtree - added_here), *(a | b for a, b in probe.apart)]
    if any(CELL_GROUP in suffixes for suffixes in relations):
        return None
    return LayoutQuery("split", probe)


def nested_request(request: CandidateRequest, numa: GuestNuma) -> CandidateRequest:
    """Return the request with CPUs and memory in one group per NUMA node of the guest.

    :raises InvalidRequest: a group of the request has a name that is needed here, or same_subtree
        names a guest NUMA node that there is not.
    """
    group = request.group(UNSUFFIXED)
    rest = {name: n for name, n in group.resources.items() if name not in CELL_CLASSES}
    to_cells, to_any, kept_traits = _sort_traits(group, rest)
    subtrees = set(request.same_subtree)
    added_groups: dict[str, RequestGroup] = {}
    for index, node in enumerate(numa.nodes):
        cell, pages = _node_groups(node, numa, group, to_cells)
        added_groups[f"_NUMA{index}"] = cell
        if pages is not None:
            added_groups[f"_PAGES{index}"] = pages
            subtrees.add(frozenset((f"_NUMA{index}", f"_PAGES{index}")))
    if to_any:
        added_groups[TRAIT_GROUP] = RequestGroup(required=to_any)
        subtrees.add(frozenset((TRAIT_GROUP, CELL_GROUP)))
    remaining_group = replace(group, resources=rest, required=kept_traits)
    if not rest:
        remaining_group = RequestGroup()
        if group.member_of or group.forbidden_aggregates:
            added_groups[HOST_GROUP] = _host_group(group)
            subtrees.add(frozenset((HOST_GROUP, CELL_GROUP)))
    for suffix in added_groups:
        if suffix in request.groups:
            raise InvalidRequest("the suffix of a group", suffix, "a name that is not reserved")
    result = replace(
        request.with_group(UNSUFFIXED, remaining_group), same_subtree=frozenset(subtrees)
    )
    for suffix, group in added_groups.items():
        result = result.with_group(suffix, group)
    others = [suffix for pair in result.apart for suffix in pair]
    unknown_suffixes = set().union(*result.same_subtree, *others) - set(result.groups)
    if unknown_suffixes:
        raise InvalidRequest(
            "same_subtree",
            min(unknown_suffixes),
            f"a group, or a guest NUMA node from _NUMA0 to _NUMA{len(numa.nodes) - 1}",
        )
    nodes = frozenset(f"_NUMA{index}" for index in range(len(numa.nodes)))
    on_cells = {UNSUFFIXED, *nodes, *(f"_PAGES{index}" for index in range(len(numa.nodes)))}
    # nothing but the guest's nodes could be on a cell, so isolating them loses nothing
    are_alone = result.groups.keys() <= on_cells and rest.keys() <= {"DISK_GB"}
    return replace(result, isolate=nodes) if len(nodes) > 1 and are_alone else result


def on_target(request: CandidateRequest, root: str) -> CandidateRequest:
    """Return the request bound to the tree of `root`.

    The unsuffixed group is bound where there is one, else every group. Disk gets a group of its own
    that is not bound: it may be on a pool that the host shares, and a bound unsuffixed group finds
    no shared provider.
    """
    group = request.group(UNSUFFIXED)
    if not group.resources:
        tied_groups = {name: replace(group, in_tree=root) for name, group in request.groups.items()}
        return replace(request, groups=tied_groups)
    disk = group.resources.get("DISK_GB", 0)
    if disk and len(group.resources) > 1 and "_DISK" not in request.groups:
        disk_traits = frozenset(
            traits for traits in group.required if _all_begin(traits, "STORAGE_")
        )
        rest = {name: n for name, n in group.resources.items() if name != "DISK_GB"}
        request = request.with_group(
            "_DISK", RequestGroup({"DISK_GB": disk}, disk_traits, group.forbidden)
        )
        group = replace(group, resources=rest, required=group.required - disk_traits)
    return request.with_group(UNSUFFIXED, replace(group, in_tree=root))


def _node_groups(
    node: GuestNode, numa: GuestNuma, group: RequestGroup, traits: frozenset[frozenset[str]]
) -> tuple[RequestGroup, RequestGroup | None]:
    cpus = {name: n for name, n in (("VCPU", node.vcpu), ("PCPU", node.pcpu)) if n}
    memory = {"MEMORY_MB": node.memory_mb} if node.memory_mb else {}
    tied_group = RequestGroup(
        required=traits, forbidden=group.forbidden, in_tree=group.in_tree
    ).requiring(HW_NUMA_ROOT)
    if not (numa.page_traits and memory):
        return tied_group.with_resources(cpus | memory), None
    pages = RequestGroup(memory, frozenset((numa.page_traits,)), in_tree=group.in_tree)
    return tied_group.with_resources(cpus), pages


def _host_group(group: RequestGroup) -> RequestGroup:
    # a group without resources needs something positive to look for: every compute root has this
    # trait
    return RequestGroup(
        member_of=group.member_of, forbidden_aggregates=group.forbidden_aggregates
    ).requiring(COMPUTE_NODE)


def _sort_traits(
    group: RequestGroup, rest: dict[str, int]
) -> tuple[frozenset[frozenset[str]], frozenset[frozenset[str]], frozenset[frozenset[str]]]:
    """Return the required traits that go to the cells, to any provider in line, and stay.

    Traits of CPUs go where the CPUs are. Of the others those stay whose resources stay: storage
    traits with the disk, everything with devices. What is left, such as an operator's own traits,
    may be on the root or on the cell.
    """
    devices = set(rest) - {"DISK_GB"}
    cells, anywhere, kept_traits = set(), set(), set()
    for traits in group.required:
        encryption = traits & set(MEMORY_ENCRYPTION_TRAITS.values())
        if all(name.startswith(_CELL_TRAIT_PREFIXES) for name in traits) and not (
            encryption and "MEM_ENCRYPTION_CONTEXT" in rest
        ):
            cells.add(traits)
        elif devices or ("DISK_GB" in rest and _all_begin(traits, STORAGE_PREFIX)):
            kept_traits.add(traits)
        else:
            anywhere.add(traits)
    return frozenset(cells), frozenset(anywhere), frozenset(kept_traits)


def _all_begin(names: frozenset[str], prefix: str) -> bool:
    return all(name.startswith(prefix) for name in names)


def _without_guest_nodes(request: CandidateRequest, *, strict: bool) -> CandidateRequest:
    """Return the request without the guest's NUMA nodes in same_subtree: there are none to name."""
    subtrees = set()
    for suffixes in request.same_subtree:
        nodes = {name for name in suffixes if GUEST_CELL_SUFFIX.fullmatch(name)} - set(
            request.groups
        )
        if strict and nodes:
            raise InvalidRequest("same_subtree", min(nodes), "the suffix of a group")
        if len(suffixes - nodes) > 1:
            subtrees.add(suffixes - nodes)
    kept_pairs = {
        (together, others)
        for together, others in request.apart
        if not any(
            GUEST_CELL_SUFFIX.fullmatch(name) and name not in request.groups
            for name in together | others
        )
    }
    return replace(request, same_subtree=frozenset(subtrees), apart=frozenset(kept_pairs))


def _is_apart(candidate: Candidate, answer: AllocationCandidates, pair: Apart) -> bool:
    """Whether the providers of some groups are outside of the subtree of those of others."""
    together, others = ([_provider(candidate, suffix) for suffix in sorted(part)] for part in pair)
    line = set.intersection(*(set(ancestry(provider, answer.providers)) for provider in together))
    top = next((provider for provider in together if provider in line), None)
    return top is not None and not any(
        top in ancestry(provider, answer.providers) for provider in others
    )


def _provider(candidate: Candidate, suffix: str) -> str:
    return candidate.mappings[suffix][0]
