"""Prefilters, which narrow a request before placement is asked: zones, tenants, host abilities.

Each prefilter takes the specification, the request so far and the context, and returns the request
narrowed. They run in the order of `PREFILTERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from compute_agent.provider_tree.trait_names import (
    COMPUTE_STATUS_DISABLED,
    DEVICE_TYPE_PREFIX,
    OWNER_NOVA,
)
from compute_agent.request import flavor, flavor_settings
from compute_agent.request.candidate_request import CandidateRequest
from compute_agent.request.errors import InvalidRequest
from compute_agent.request.pci_aliases import PciAlias
from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.errors import NoValidHost
from compute_agent.scheduler.fleet.aggregates import Aggregates
from compute_agent.scheduler.outcomes import Causes

_IMAGE_PROPERTY_TRAITS = (
    ("hw_disk_bus", "COMPUTE_STORAGE_BUS_"),
    ("hw_cdrom_bus", "COMPUTE_STORAGE_BUS_"),
    ("hw_vif_model", "COMPUTE_NET_VIF_MODEL_"),
    ("hw_video_model", "COMPUTE_GRAPHICS_MODEL_"),
    ("hw_architecture", "HW_ARCH_"),
    ("hw_emulation_architecture", "COMPUTE_ARCH_"),
    ("hw_viommu_model", "COMPUTE_VIOMMU_MODEL_"),
)
_ENCRYPTION_FORMATS = ("plain", "luks", "luksv2")


class PrefilterContext(Struct, frozen=True):
    """Options and facts that prefilters look at.

    `owners`: every agent is new enough to mark what is its own.
    `device_type_traits`: those of PCI devices that placement knows.
    `known_traits` are the standard traits, to leave out image properties that have none.
    `default_zone` is the name of the zone of hosts that are in no other.
    """

    aggregates: Aggregates = field(default_factory=Aggregates)
    tenant_aggregates: bool = False
    tenant_aggregate_required: bool = False
    image_type: bool = False
    isolated_aggregates: bool = False
    image_metadata: bool = False
    routed_networks: bool = False
    owners: bool = False
    pci_aliases: Mapping[str, PciAlias] = {}
    device_type_traits: frozenset[str] = frozenset()
    known_traits: frozenset[str] = frozenset()
    default_zone: str = "nova"


Prefilter = Callable[[RequestSpec, CandidateRequest, PrefilterContext], CandidateRequest]


def tenant(
    spec: RequestSpec, request: CandidateRequest, context: PrefilterContext
) -> CandidateRequest:
    """Keep a project to the aggregates that are its own."""
    if not context.tenant_aggregates:
        return request
    uuids = context.aggregates.of_tenant(spec.project_id)
    if uuids:
        return _member_of(request, uuids)
    if context.tenant_aggregate_required:
        raise _nowhere(f"No aggregate is given to project {spec.project_id}.")
    return request


def availability_zone(
    spec: RequestSpec, request: CandidateRequest, context: PrefilterContext
) -> CandidateRequest:
    """Keep to the availability zone asked for; hosts that are in none are in the default one."""
    if not spec.availability_zone:
        return request
    uuids = context.aggregates.where("availability_zone", spec.availability_zone)
    if not uuids and spec.availability_zone == context.default_zone:
        return _not_member_of(request, context.aggregates.with_key("availability_zone"))
    if not uuids:
        raise _nowhere(f"No aggregate belongs to availability zone {spec.availability_zone}.")
    return _member_of(request, uuids)


def destination_aggregates(
    spec: RequestSpec, request: CandidateRequest, _context: PrefilterContext
) -> CandidateRequest:
    """Keep to, and off, the aggregates that the caller names."""
    for uuids in spec.destination.aggregates:
        request = _member_of(request, uuids)
    return _not_member_of(request, spec.destination.forbidden_aggregates)


def image_type(
    spec: RequestSpec, request: CandidateRequest, context: PrefilterContext
) -> CandidateRequest:
    """Ask for hosts that can use the image's disk format."""
    trait = f"COMPUTE_IMAGE_TYPE_{spec.image.disk_format.upper()}"
    # a volume has been made from the image elsewhere; a format without a trait is any host's
    if not context.image_type or spec.is_bfv or trait not in context.known_traits:
        return request
    return _on_root(request, trait)


def disabled_hosts(
    _spec: RequestSpec, request: CandidateRequest, _context: PrefilterContext
) -> CandidateRequest:
    """Keep off hosts that an operator disabled; a rebuild, which stays, asks no candidates."""
    return replace(request, root_forbidden=request.root_forbidden | {COMPUTE_STATUS_DISABLED})


def isolated_aggregates(
    _spec: RequestSpec, request: CandidateRequest, context: PrefilterContext
) -> CandidateRequest:
    """Keep off aggregates that are for requests with a certain trait."""
    if not context.isolated_aggregates:
        return request
    asked_traits = {
        name for group in request.groups.values() for traits in group.required for name in traits
    }
    uuids = context.aggregates.requiring_traits_beyond(asked_traits | request.root_required)
    return _not_member_of(request, uuids)


def image_metadata(
    spec: RequestSpec, request: CandidateRequest, context: PrefilterContext
) -> CandidateRequest:
    """Ask for the models and buses that the image's properties name, where there is a trait."""
    if not context.image_metadata:
        return request
    for name, prefix in _IMAGE_PROPERTY_TRAITS:
        value = spec.image.properties.get(name)
        if value:
            trait = prefix + value.upper().replace("-", "_")
            # one property without a trait must not cost the others
            if trait in context.known_traits:
                request = _on_root(request, trait)
    return request


def abilities(
    spec: RequestSpec, request: CandidateRequest, _context: PrefilterContext
) -> CandidateRequest:
    """Ask for abilities that flavor, image and ports imply."""
    extra_specs = spec.flavor.extra_specs
    if extra_specs.get("accel:device_profile"):
        request = _on_root(request, "COMPUTE_ACCELERATORS")
    if flavor_settings.flag(spec, "hw:virtio_packed_ring"):
        request = _on_root(request, "COMPUTE_NET_VIRTIO_PACKED")
    if any(network.remote_managed for network in spec.requested_networks):
        request = _on_root(request, "COMPUTE_REMOTE_MANAGED_PORTS")
    if flavor_settings.flag(spec, "hw:ephemeral_encryption"):
        request = _on_root(request, "COMPUTE_EPHEMERAL_ENCRYPTION")
        fmt = spec.setting("hw:ephemeral_encryption_format")
        if fmt is not None and fmt not in _ENCRYPTION_FORMATS:
            raise InvalidRequest(
                "hw:ephemeral_encryption_format", fmt, " or ".join(_ENCRYPTION_FORMATS)
            )
        if fmt is not None:
            request = _on_root(request, f"COMPUTE_EPHEMERAL_ENCRYPTION_{fmt.upper()}")
    if spec.setting("hw:sound_model") == "virtio":
        request = _on_root(request, "COMPUTE_SOUND_MODEL_VIRTIO")
    return request


def routed_networks(
    spec: RequestSpec, request: CandidateRequest, context: PrefilterContext
) -> CandidateRequest:
    """Keep to the aggregates of the network segments that the request uses."""
    if not context.routed_networks:
        return request
    for network in spec.requested_networks:
        if network.physnet_aggregates:
            request = _member_of(request, network.physnet_aggregates)
    return request


def owners(
    spec: RequestSpec, request: CandidateRequest, context: PrefilterContext
) -> CandidateRequest:
    """Keep off hosts and PCI devices that another service reports as its own."""
    if not context.owners:
        return request
    request = _on_root(request, OWNER_NOVA)
    for suffix in flavor.device_aliases(spec).keys() & request.groups.keys():
        request = request.with_group(suffix, request.group(suffix).requiring(OWNER_NOVA))
    return request


def device_types(
    spec: RequestSpec, request: CandidateRequest, context: PrefilterContext
) -> CandidateRequest:
    """Keep off devices of other types than their alias means.

    Devices whose agents do not mark them are left to these agents.
    """
    for suffix, name in flavor.device_aliases(spec).items():
        alias = context.pci_aliases.get(name)
        if alias is None or suffix not in request.groups:
            continue
        wanted_traits = {f"{DEVICE_TYPE_PREFIX}{kind}" for kind in alias.device_types}
        others = context.device_type_traits - wanted_traits
        request = request.with_group(suffix, request.group(suffix).forbidding(*others))
    return request


PREFILTERS: tuple[Prefilter, ...] = (
    tenant,
    availability_zone,
    destination_aggregates,
    image_type,
    disabled_hosts,
    isolated_aggregates,
    image_metadata,
    abilities,
    routed_networks,
    owners,
    device_types,
)


def apply(
    spec: RequestSpec, request: CandidateRequest, context: PrefilterContext
) -> CandidateRequest:
    """Return `request` narrowed by every prefilter.

    :raises NoValidHost: a zone or tenant that no aggregate stands for.
    """
    for prefilter in PREFILTERS:
        request = prefilter(spec, request, context)
    return request


def _member_of(request: CandidateRequest, uuids: frozenset[str]) -> CandidateRequest:
    return replace(request, root_member_of=request.root_member_of | {uuids})


def _not_member_of(request: CandidateRequest, uuids: frozenset[str]) -> CandidateRequest:
    forbidden_aggregates = request.root_forbidden_aggregates | uuids
    return replace(request, root_forbidden_aggregates=forbidden_aggregates)


def _on_root(request: CandidateRequest, trait: str) -> CandidateRequest:
    return replace(request, root_required=request.root_required | {trait})


def _nowhere(reason: str) -> NoValidHost:
    return NoValidHost(reason, Causes(notes=(reason,)))
