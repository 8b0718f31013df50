"""Checks of options against the guests that run already: what they hold must be offered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from compute_agent.discovery import cpu_list
from compute_agent.virt.cpu_sets import CpuSets
from compute_agent.virt.driver import InstanceDevices
from compute_agent.virt.layout.options import MdevTypeOptions
from compute_agent.virt.layout.pmem import PmemLabel


def cpu_set_faults(guests: Mapping[str, InstanceDevices], sets: CpuSets) -> Iterator[str]:
    """Name guests on CPUs that are not for their kind any more.

    Without a dedicated set pinned guests are the scheduler's affair, as they were before there was
    one.
    """
    if sets.dedicated_cpus is None:
        return
    for uuid, devices in sorted(guests.items()):
        if missing_cpus := frozenset(devices.pinned_cpus) - sets.dedicated_cpus:
            yield (
                f"guest {uuid} is pinned to CPUs {cpu_list.write(missing_cpus)}, which "
                "[compute]cpu_dedicated_set does not have"
            )
        if shared_and_dedicated := frozenset(devices.floating_cpus) & sets.dedicated_cpus:
            yield (
                f"guest {uuid} may run on CPUs {cpu_list.write(shared_and_dedicated)}, which "
                "[compute]cpu_dedicated_set gives to pinned guests"
            )


def device_faults(
    guests: Mapping[str, InstanceDevices],
    types: tuple[MdevTypeOptions, ...],
    labels: tuple[PmemLabel, ...],
) -> Iterator[str]:
    """Name guests that hold mediated devices or persistent memory that no option offers."""
    enabled_types = {mdev_type.type_id for mdev_type in types}
    offered_namespaces = {namespace for label in labels for namespace in label.namespaces}
    for uuid, devices in sorted(guests.items()):
        held_types = {mdev.type_id for mdev in devices.mdevs if mdev.type_id is not None}
        for type_id in sorted(held_types - enabled_types):
            yield (
                f"guest {uuid} holds a mediated device of type {type_id}, which "
                "[devices]enabled_mdev_types does not have"
            )
        for name in sorted(set(devices.pmem) - offered_namespaces):
            yield (
                f"guest {uuid} holds persistent memory {name}, which [libvirt]pmem_namespaces does "
                "not have"
            )
