"""Providers for network interfaces, PCI devices and accelerators after a claim.

Ports are in `request.ports`. A claim's ``mappings`` name the providers by the suffix of the group,
and the suffix is what its requester called it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from compute_agent.request import flavor
from compute_agent.request.errors import InvalidRequest
from compute_agent.request.spec import RequestSpec

Mappings = Mapping[str, Sequence[str]]


def parent_interface(provider_name: str) -> str:
    """Return the interface whose VF a port with bandwidth gets: ``parent_ifname``.

    :param provider_name: of the provider that its bandwidth comes from; Neutron names it
        ``<host>:<agent>:<interface>``.
    :raises InvalidRequest: the name has no three parts, so that no device can be chosen.
    """
    parts = provider_name.split(":", 2)
    if len(parts) != 3 or not all(parts):
        raise InvalidRequest(
            "the name of the provider of a port's bandwidth",
            provider_name,
            "<host>:<agent>:<interface>",
        )
    return parts[2]


def device_providers(spec: RequestSpec, mappings: Mappings) -> dict[str, tuple[str, ...]]:
    """Return the providers of the PCI devices by request id: ``rp_uuids`` of a PCI request.

    The host picks a device of each.

    :raises InvalidRequest: the claim has no provider for one of the devices.
    """
    providers_by_device: dict[str, tuple[str, ...]] = {}
    for suffix in flavor.device_aliases(spec):
        request_id = suffix.rpartition("-")[0]
        providers_by_device[request_id] = (
            *providers_by_device.get(request_id, ()),
            _only(suffix, mappings),
        )
    return providers_by_device


def accelerator_providers(requester_ids: Collection[str], mappings: Mappings) -> dict[str, str]:
    """Return the provider of each accelerator request: ``device_rp_uuid``.

    :raises InvalidRequest: the claim has no provider for one of them.
    """
    return {requester: _only(requester, mappings) for requester in requester_ids}


def _only(suffix: str, mappings: Mappings) -> str:
    providers = mappings.get(suffix, ())
    if len(providers) != 1:
        raise InvalidRequest("mappings", sorted(mappings), f"one provider for group {suffix}")
    return providers[0]
