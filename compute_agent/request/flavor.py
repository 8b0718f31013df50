"""Requests for candidates, made from request specifications."""

from __future__ import annotations

import math
import uuid
from collections import Counter
from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from compute_agent.request import contradictions, extra_specs, flavor_settings
from compute_agent.request.candidate_request import (
    GUEST_CELL_SUFFIX,
    SUFFIX,
    UNSUFFIXED,
    CandidateRequest,
    RequestGroup,
    with_host_traits_on_root,
)
from compute_agent.request.errors import InvalidRequest
from compute_agent.request.pci_aliases import PciAlias
from compute_agent.request.spec import PciRequest, RequestSpec

_ALIAS_SPEC = "pci_passthrough:alias"
_ALIAS_NAMESPACE = uuid.UUID("6f2ad0f5-4c54-4b8f-9b5c-0a4bb2b9f0c1")


class RequestOptions(Struct, frozen=True):
    """Options of the conversion of a specification.

    `pci_aliases` is `None` when devices are not requested from placement. Then an alias is
    refused, unless `is_without_devices`: nothing is requested for aliases.
    """

    limit: int | None = 1000
    is_without_devices: bool = False
    pci_aliases: Mapping[str, PciAlias] | None = None


def request_of(spec: RequestSpec, options: RequestOptions) -> CandidateRequest:
    """Return the request made from `spec`, before prefilters and shapes.

    :raises InvalidRequest: an extra spec, image property, alias or group that cannot be used.
    """
    contradictions.check(spec)
    written_groups = extra_specs.read(spec.flavor.extra_specs)
    request = replace(written_groups.request, limit=options.limit)
    sizes = _sizes(spec, written_groups)
    group = _join_groups(request.group(UNSUFFIXED).adding(sizes), spec.unsuffixed_group)
    request = request.with_group(
        UNSUFFIXED, group.requiring(*extra_specs.image_traits(spec.image.properties))
    )
    request = flavor_settings.apply(spec, request)
    for index, (requester_id, group) in enumerate(spec.requested_groups):
        request = _with_new_group(request, requester_id or f"_requested_{index}", group)
    for suffix, group in _device_groups(spec, options):
        request = _with_new_group(request, suffix, group)
    request = replace(
        request,
        root_required=request.root_required | spec.root_required,
        root_forbidden=request.root_forbidden | spec.root_forbidden,
        same_subtree=request.same_subtree | spec.same_subtree,
    )
    request = with_host_traits_on_root(request)
    _check(request)
    return request


def _sizes(spec: RequestSpec, written_groups: extra_specs.WrittenGroups) -> dict[str, int]:
    """Return the flavor's own sizes, each unless a group names its class already."""
    flavor = spec.flavor
    sizes: dict[str, int] = {}
    if not written_groups.request.total("VCPU") + written_groups.request.total("PCPU"):
        shared, pinned = flavor_settings.pinned_cpus(spec, flavor.vcpus)
        sizes["VCPU"] = 0 if written_groups.mentions("VCPU") else shared
        sizes["PCPU"] = pinned
    if not written_groups.mentions("MEMORY_MB"):
        sizes["MEMORY_MB"] = flavor.memory_mb
    if not written_groups.mentions("DISK_GB"):
        root = 0 if spec.is_bfv else flavor.root_gb
        sizes["DISK_GB"] = root + flavor.ephemeral_gb + math.ceil(flavor.swap / 1024)
    return {name: amount for name, amount in sizes.items() if amount}


def _join_groups(group: RequestGroup, other: RequestGroup) -> RequestGroup:
    return replace(
        group.adding(other.resources),
        required=group.required | other.required,
        forbidden=group.forbidden | other.forbidden,
        member_of=group.member_of | other.member_of,
        forbidden_aggregates=group.forbidden_aggregates | other.forbidden_aggregates,
        in_tree=other.in_tree or group.in_tree,
    )


def _with_new_group(
    request: CandidateRequest, suffix: str, group: RequestGroup
) -> CandidateRequest:
    if not SUFFIX.fullmatch(suffix):
        raise InvalidRequest(
            "requester_id", suffix, "1 to 64 letters, digits, underscores and dashes"
        )
    if suffix in request.groups:
        raise InvalidRequest("requester_id", suffix, "a name that no other group has")
    return request.with_group(suffix, group)


def _device_groups(spec: RequestSpec, options: RequestOptions) -> list[tuple[str, RequestGroup]]:
    """Return one group per device: each device is on one provider, and they may differ."""
    groups: list[tuple[str, RequestGroup]] = []
    aliases = options.pci_aliases
    if options.is_without_devices:
        return groups
    # a caller that knows the aliases sends the groups of their devices beside them
    given_suffixes = {group.requester_id for group in spec.requested_groups}
    for request in _pci_requests(spec):
        if given_suffixes.issuperset(_suffixes_of(request)):
            continue
        if aliases is None:
            raise InvalidRequest(
                _ALIAS_SPEC,
                request.alias_name,
                "no alias while [filter_scheduler]pci_in_placement is off",
            )
        alias = aliases.get(request.alias_name)
        if alias is None:
            known = ", ".join(sorted(aliases)) or "there is none"
            raise InvalidRequest(
                _ALIAS_SPEC, request.alias_name, f"an alias of option [pci]alias: {known}"
            )
        group = RequestGroup({alias.resource_class: 1}, forbidden=alias.forbidden_traits)
        group = group.requiring(*alias.traits)
        groups += [(suffix, group) for suffix in _suffixes_of(request)]
    return groups


def device_aliases(spec: RequestSpec) -> dict[str, str]:
    """Return the names of aliases by the suffixes of the groups that stand for PCI devices."""
    return {s: request.alias_name for request in _pci_requests(spec) for s in _suffixes_of(request)}


def _suffixes_of(request: PciRequest) -> list[str]:
    return [f"{request.request_id}-{i}" for i in range(request.count)]


def _pci_requests(spec: RequestSpec) -> tuple[PciRequest, ...]:
    """Return the requests for aliases; a port's function has none, and is left to the host."""
    if requests := tuple(r for r in spec.pci_requests if r.alias_name):
        return requests
    text = spec.flavor.extra_specs.get(_ALIAS_SPEC, "")
    counts: Counter[str] = Counter()
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, _, count = item.partition(":")
        counts[name.strip()] += extra_specs.amount(_ALIAS_SPEC, count or "1")
    # made from the name so that equal flavors make equal requests
    return tuple(
        PciRequest(str(uuid.uuid5(_ALIAS_NAMESPACE, name)), name, count)
        for name, count in counts.items()
    )


def _check(request: CandidateRequest) -> None:
    if not any(group.resources for group in request.groups.values()):
        raise InvalidRequest("the resources of the request", {}, "an amount of at least one class")
    subtrees = [*request.same_subtree, *(suffix for pair in request.apart for suffix in pair)]
    in_subtrees = set().union(*subtrees)
    missing_suffixes = in_subtrees - set(request.groups)
    for suffix in sorted(
        name for name in missing_suffixes if not GUEST_CELL_SUFFIX.fullmatch(name)
    ):
        raise InvalidRequest(
            "same_subtree",
            suffix,
            f"the suffix of a group: {', '.join(sorted(set(request.groups) - {UNSUFFIXED}))}",
        )
    for suffix, group in request.groups.items():
        group_text = f"group {suffix}" if suffix else "the unsuffixed group"
        if not group.resources and suffix not in in_subtrees:
            raise InvalidRequest(
                f"the resources of {group_text}",
                {},
                "an amount of at least one class"
                + (", or the suffix of the group in same_subtree" if suffix else ""),
            )
        for traits in group.required:
            if traits <= group.forbidden:
                raise InvalidRequest(
                    group_text,
                    " or ".join(sorted(traits)),
                    "each trait required or forbidden, not both",
                )
    if contradictory_traits := request.root_required & request.root_forbidden:
        raise InvalidRequest(
            "root_required", min(contradictory_traits), "a trait required or forbidden, not both"
        )
