"""Nearness of devices to the NUMA nodes of a guest, as ``hw:pci_numa_affinity_policy`` wants it.

    required   below the cell of one of the guest's nodes
    legacy     there, or below no cell: it is not known where it is
    preferred  anywhere, there first
    socket     below a cell of the same socket; which cells share one only the host knows

The setting is for PCI devices and accelerators; without it an alias has a policy of its own, for
guests with NUMA nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from compute_agent.request import flavor
from compute_agent.request.candidate_request import UNSUFFIXED
from compute_agent.request.pci_aliases import PciAlias
from compute_agent.request.spec import RequestSpec

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
