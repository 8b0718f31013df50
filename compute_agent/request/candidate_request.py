"""Requests for allocation candidates: request groups, and their query string.

Equal requests give equal strings: everything is sorted, so that a proxy or a log can compare them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from urllib.parse import urlencode

from msgspec import Struct
from msgspec.structs import replace

UNSUFFIXED = ""
Apart = tuple[frozenset[str], frozenset[str]]
SUFFIX = re.compile(r"[a-zA-Z0-9_-]{1,64}")
GUEST_CELL_SUFFIX = re.compile(r"_NUMA\d+")
"""Suffixes of the groups that stand for the guest's NUMA nodes."""
HOST_TRAIT_PREFIXES = ("COMPUTE_", "OWNER_", "MISC_", "HW_ARCH_")
"""Traits that describe a host: they are on the root, also where the root gives no resources."""

PLAIN_MICROVERSION = (1, 36)
"""The first with root_required, same_subtree and mappings together."""
ANY_OF_MICROVERSION = (1, 39)
"""The first with `required=in:A,B`."""


class RequestGroup(Struct, frozen=True):
    """One request group.

    :param resources: resource class to amount, all above 0.
    :param required: sets of traits; of each set the provider must have at least one.
    :param forbidden: traits that the provider must not have.
    :param member_of: sets of aggregates; of each set the provider must be in at least one.
    :param forbidden_aggregates: aggregates that the provider must not be in.
    :param in_tree: uuid of any provider of the tree that must serve this group.
    """

    resources: Mapping[str, int] = {}
    required: frozenset[frozenset[str]] = frozenset()
    forbidden: frozenset[str] = frozenset()
    member_of: frozenset[frozenset[str]] = frozenset()
    forbidden_aggregates: frozenset[str] = frozenset()
    in_tree: str | None = None

    @property
    def empty(self) -> bool:
        """Whether the group requests nothing."""
        return self == RequestGroup()

    def accepts(self, traits: frozenset[str]) -> bool:
        """Return whether a provider with these traits has those that the group asks for."""
        return not self.forbidden & traits and all(names & traits for names in self.required)

    def requiring(self, *traits: str) -> RequestGroup:
        """Return this group with each of `traits` required."""
        return replace(self, required=self.required | {frozenset((trait,)) for trait in traits})

    def forbidding(self, *traits: str) -> RequestGroup:
        """Return this group with each of `traits` forbidden."""
        return replace(self, forbidden=self.forbidden | set(traits))

    def with_resources(self, resources: Mapping[str, int]) -> RequestGroup:
        """Return this group with `resources` instead of its own."""
        return replace(self, resources=dict(resources))

    def adding(self, resources: Mapping[str, int]) -> RequestGroup:
        """Return this group with `resources` added to its own."""
        total = dict(self.resources)
        for resource_class, amount in resources.items():
            total[resource_class] = total.get(resource_class, 0) + amount
        return self.with_resources(total)


class CandidateRequest(Struct, frozen=True):
    """A whole request: groups by suffix ("" = unsuffixed), and clauses for all of them.

    :param group_policy: `none` or `isolate`; sent where there are several suffixed groups.
    :param same_subtree: sets of suffixes whose providers must be in one subtree.
    :param apart: pairs of such a set and of suffixes whose providers must not be in that subtree.
    :param isolate: suffixes whose providers serve no other group; a hint only, which a placement
        without extensions does not get.
    :param root_member_of: sets of aggregates; the host must be in one of each.
    :param root_forbidden_aggregates: aggregates that the host must not be in.
    :param limit: maximum of candidates, `None` for all.
    """

    groups: Mapping[str, RequestGroup] = {}
    group_policy: str = "none"
    root_required: frozenset[str] = frozenset()
    root_forbidden: frozenset[str] = frozenset()
    same_subtree: frozenset[frozenset[str]] = frozenset()
    apart: frozenset[Apart] = frozenset()
    isolate: frozenset[str] = frozenset()
    root_member_of: frozenset[frozenset[str]] = frozenset()
    root_forbidden_aggregates: frozenset[str] = frozenset()
    limit: int | None = None

    def group(self, suffix: str) -> RequestGroup:
        """Return the group of `suffix`, or an empty one."""
        return self.groups.get(suffix, RequestGroup())

    def with_group(self, suffix: str, group: RequestGroup) -> CandidateRequest:
        """Return this request with the group of `suffix` replaced, or removed when it is empty."""
        groups = {key: value for key, value in self.groups.items() if key != suffix}
        if not group.empty:
            groups[suffix] = group
        return replace(self, groups=groups)

    def total(self, resource_class: str) -> int:
        """Return the sum over all groups of their amounts of `resource_class`."""
        return sum(group.resources.get(resource_class, 0) for group in self.groups.values())

    @property
    def resources(self) -> dict[str, int]:
        """The sum of the resources of all groups."""
        total = RequestGroup()
        for group in self.groups.values():
            total = total.adding(group.resources)
        return dict(total.resources)

    @property
    def microversion(self) -> tuple[int, int]:
        """The oldest microversion that can express this request."""
        any_of = any(len(traits) > 1 for group in self.groups.values() for traits in group.required)
        return ANY_OF_MICROVERSION if any_of else PLAIN_MICROVERSION

    @property
    def gains_by_extensions(self) -> bool:
        """Whether the extended API can express more of this request than the plain one."""
        on_root = self.root_member_of or self.root_forbidden_aggregates
        return bool(self.apart or self.isolate or on_root)

    def plain(self) -> CandidateRequest:
        """Return this request for the plain API, with clauses on the host moved to groups.

        The aggregates bind the unsuffixed group, or every group when that has no resources: the
        clause would be lost otherwise.
        """
        tied_suffixes = [UNSUFFIXED]
        if not self.group(UNSUFFIXED).resources:
            tied_suffixes = sorted(name for name, group in self.groups.items() if group.resources)
        request = self
        for suffix in tied_suffixes:
            group = self.group(suffix)
            group = replace(
                group,
                member_of=group.member_of | self.root_member_of,
                forbidden_aggregates=group.forbidden_aggregates | self.root_forbidden_aggregates,
            )
            request = request.with_group(suffix, group)
        nothing: frozenset[str] = frozenset()
        return replace(
            request, root_member_of=frozenset(), root_forbidden_aggregates=nothing, isolate=nothing
        )

    def parameters(self, *, is_extended: bool = False) -> list[tuple[str, str]]:
        """Return the query parameters of `GET /allocation_candidates`, sorted, unquoted.

        :param is_extended: use the extended API; otherwise the request must be `plain`.
        """
        return list(self._pairs(is_extended=is_extended))

    def query(self, *, is_extended: bool = False) -> str:
        """Return the query string of `GET /allocation_candidates`."""
        return urlencode(self.parameters(is_extended=is_extended), safe=":,!")

    def _pairs(self, *, is_extended: bool) -> Iterator[tuple[str, str]]:
        if self.limit is not None:
            yield "limit", str(self.limit)
        isolate = self.isolate if is_extended and self.group_policy == "none" else frozenset()
        if isolate:
            yield "isolate", ",".join(sorted(isolate))
        elif sum(1 for suffix in self.groups if suffix != UNSUFFIXED) > 1:
            yield "group_policy", self.group_policy
        for uuids in sorted(sorted(uuids) for uuids in self.root_member_of):
            yield "root_member_of", "in:" + ",".join(uuids)
        if self.root_forbidden_aggregates:
            yield "root_member_of", "!in:" + ",".join(sorted(self.root_forbidden_aggregates))
        root = [*sorted(self.root_required), *(f"!{name}" for name in sorted(self.root_forbidden))]
        if root:
            yield "root_required", ",".join(root)
        yield from (("same_subtree", value) for value in self._subtrees(is_extended=is_extended))
        for suffix in sorted(self.groups):
            yield from _group_pairs(suffix, self.groups[suffix])

    def _subtrees(self, *, is_extended: bool) -> list[str]:
        subtree_texts = {",".join(sorted(suffixes)) for suffixes in self.same_subtree}
        for together, others in self.apart:
            if is_extended:
                subtree_texts.add(
                    ",".join([*sorted(together), *(f"!{name}" for name in sorted(others))])
                )
            elif len(together) > 1:
                subtree_texts.add(",".join(sorted(together)))
        return sorted(subtree_texts)


def _group_pairs(suffix: str, group: RequestGroup) -> Iterator[tuple[str, str]]:
    if group.resources:
        amounts = (f"{name}:{amount}" for name, amount in sorted(group.resources.items()))
        yield f"resources{suffix}", ",".join(amounts)
    plain = sorted(name for traits in group.required if len(traits) == 1 for name in traits)
    traits = [*plain, *(f"!{name}" for name in sorted(group.forbidden))]
    if traits:
        yield f"required{suffix}", ",".join(traits)
    for names in sorted(sorted(traits) for traits in group.required if len(traits) > 1):
        yield f"required{suffix}", "in:" + ",".join(names)
    for uuids in sorted(sorted(uuids) for uuids in group.member_of):
        yield f"member_of{suffix}", "in:" + ",".join(uuids)
    if group.forbidden_aggregates:
        yield f"member_of{suffix}", "!in:" + ",".join(sorted(group.forbidden_aggregates))
    if group.in_tree is not None:
        yield f"in_tree{suffix}", group.in_tree


def with_host_traits_on_root(request: CandidateRequest) -> CandidateRequest:
    """Move traits that describe the host from the unsuffixed group to the root.

    A trait of a group must be on a provider that gives resources to it, and in a nested layout the
    root may give none. A choice between several traits ("any of") cannot be required of the root
    and stays where it is.
    """
    group = request.group(UNSUFFIXED)
    required_traits = {
        name
        for traits in group.required
        for name in traits
        if len(traits) == 1 and name.startswith(HOST_TRAIT_PREFIXES)
    }
    forbidden_traits = {name for name in group.forbidden if name.startswith(HOST_TRAIT_PREFIXES)}
    stripped_group = replace(
        group,
        required=group.required - {frozenset((name,)) for name in required_traits},
        forbidden=group.forbidden - forbidden_traits,
    )
    return replace(
        request.with_group(UNSUFFIXED, stripped_group),
        root_required=request.root_required | required_traits,
        root_forbidden=request.root_forbidden | forbidden_traits,
    )
