"""Allocations of vGPUs: from the root to GPUs, between a GPU and its VFs, to a new class name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from oslo_log import log

from compute_agent import errors
from compute_agent.discovery.facts import PciAddress, PhysicalGpu
from compute_agent.provider_tree import ProviderData
from compute_agent.virt.driver import Allocations
from compute_agent.virt.layout import names
from compute_agent.virt.layout.gpus import MIG_CLASS_PREFIX
from compute_agent.virt.layout.wanted import WantedProvider
from compute_agent.virt.reshape.moves import (
    DevicesOf,
    Situation,
    Unit,
    held,
    move_all,
    shift,
    used,
)

LOG = log.getLogger(__name__)

VGPU = "VGPU"
_NOT_VGPU = ("PGPU", "CUSTOM_PCI_", MIG_CLASS_PREFIX)


def reasons(situation: Situation) -> Iterator[str]:
    root = situation.root
    for resource_class in sorted(_vgpu_classes(situation) & root.inventory.keys()):
        if _vgpu_providers(situation):
            yield f"{resource_class} moves from {root.name} to its GPUs"
    for gpu in situation.topology.gpus:
        for vf_provider in _obsolete_vfs(situation, gpu):
            if vf_provider.inventory and _whole(situation, gpu):
                yield f"vGPUs move from {vf_provider.name} to their GPU {gpu.address}"
        whole = _obsolete_whole(situation, gpu)
        if whole is not None and any(rc in whole.inventory for rc in _vgpu_classes(situation)):
            yield f"vGPUs move from {whole.name} to its virtual functions"
    for source, target in _renamed(situation):
        name = situation.name_of(source.provider)
        yield f"{source.resource_class} on {name} becomes {target.resource_class}"


def move(situation: Situation, allocations: Allocations, devices_of: DevicesOf) -> None:
    """Edit `allocations` in place. Raises ReshapeFailed naming consumers."""
    _root_to_gpus(situation, allocations, devices_of)
    for gpu in situation.topology.gpus:
        _vfs_to_whole(situation, allocations, gpu)
        _whole_to_vfs(situation, allocations, gpu, devices_of)
    for source, target in _renamed(situation):
        move_all(allocations, source, target)


def _functions(gpu: PhysicalGpu) -> tuple[PciAddress, ...]:
    return (gpu.address, *(vf.address for vf in gpu.vfs))


def _vgpu_providers(situation: Situation) -> dict[PciAddress, WantedProvider]:
    """Providers of the layout that count vGPUs, by the address of their function."""
    functions = {f for gpu in situation.topology.gpus for f in _functions(gpu)}
    return {
        wanted.address: wanted
        for wanted in situation.layout.children
        if wanted.address in functions and _vgpu_class(wanted)
    }


def _vgpu_class(wanted: WantedProvider) -> str | None:
    classes = [rc for rc in wanted.inventory if not rc.startswith(_NOT_VGPU)]
    return classes[0] if len(classes) == 1 else None


def _vgpu_classes(situation: Situation) -> frozenset[str]:
    counted = {_vgpu_class(wanted) for wanted in _vgpu_providers(situation).values()}
    return frozenset({VGPU, *(rc for rc in counted if rc)})


def _unit(situation: Situation, wanted: WantedProvider) -> Unit:
    resource_class = _vgpu_class(wanted)
    if resource_class is None:
        raise ValueError(f"{wanted.name} does not count vGPUs")
    return Unit(situation.identities.uuids[wanted.key], resource_class)


def _whole(situation: Situation, gpu: PhysicalGpu) -> WantedProvider | None:
    """The GPU's own provider, if it counts the vGPUs of the GPU's VFs."""
    return _vgpu_providers(situation).get(gpu.address) if gpu.vfs else None


def _wanted_vfs(situation: Situation, gpu: PhysicalGpu) -> list[WantedProvider]:
    counting = _vgpu_providers(situation)
    return [counting[vf.address] for vf in gpu.vfs if vf.address in counting]


def _obsolete_vfs(situation: Situation, gpu: PhysicalGpu) -> list[ProviderData]:
    """Providers of single VFs that the layout no longer has."""
    vfs = {vf.address for vf in gpu.vfs}
    wanted = set(situation.identities.uuids.values())
    return [
        provider
        for provider in situation.owned()
        if provider.uuid not in wanted
        and names.device_address(situation.layout.root.name, provider.name) in vfs
    ]


def _obsolete_whole(situation: Situation, gpu: PhysicalGpu) -> ProviderData | None:
    """The provider that placement has for the GPU, if its VFs count for themselves now."""
    if not _wanted_vfs(situation, gpu):
        return None
    for provider in situation.owned():
        address = names.device_address(situation.layout.root.name, provider.name)
        if address == gpu.address:
            return provider
    return None


def _renamed(situation: Situation) -> Iterator[tuple[Unit, Unit]]:
    """GPUs that count the same under another class name.

    Only where nothing else about the record changed: otherwise the old units were other things.
    """
    for wanted in _vgpu_providers(situation).values():
        if wanted.key not in situation.identities.known:
            continue
        target = _unit(situation, wanted)
        stored = situation.tree.data(target.provider).inventory
        old = [rc for rc in stored if rc not in wanted.inventory and not rc.startswith(_NOT_VGPU)]
        if len(old) != 1 or target.resource_class in stored:
            continue
        if stored[old[0]]["total"] == wanted.inventory[target.resource_class].total:
            yield Unit(target.provider, old[0]), target


def _vfs_to_whole(situation: Situation, allocations: Allocations, gpu: PhysicalGpu) -> None:
    whole = _whole(situation, gpu)
    if whole is None:
        return
    target = _unit(situation, whole)
    for provider in _obsolete_vfs(situation, gpu):
        for resource_class in sorted(_vgpu_classes(situation)):
            move_all(allocations, Unit(provider.uuid, resource_class), target)


def _whole_to_vfs(
    situation: Situation, allocations: Allocations, gpu: PhysicalGpu, devices_of: DevicesOf
) -> None:
    """Each vGPU goes to the VF its guest has, or where that is unknown to the first free one."""
    whole = _obsolete_whole(situation, gpu)
    if whole is None:
        return
    vfs = {w.address: w for w in _wanted_vfs(situation, gpu) if w.address is not None}
    units = {address: _unit(situation, wanted) for address, wanted in vfs.items()}
    free = {
        address: vfs[address].inventory[unit.resource_class].total - used(allocations, unit)
        for address, unit in units.items()
    }
    sources = [Unit(whole.uuid, rc) for rc in sorted(_vgpu_classes(situation))]
    holders = [
        (consumer, record, source)
        for consumer, record in sorted(allocations.items())
        for source in sources
        if held(record, source)
    ]
    unknown: list[tuple[str, dict[str, Any], Unit]] = []
    for consumer, record, source in holders:
        for parent in _parents(consumer, devices_of):
            if parent in units and held(record, source):
                shift(record, source, units[parent], 1)
                free[parent] -= 1
        if held(record, source):
            unknown.append((consumer, record, source))
    for consumer, record, source in unknown:
        for address, unit in units.items():
            amount = min(held(record, source), max(free[address], 0))
            shift(record, source, unit, amount)
            free[address] -= amount
        if left := held(record, source):
            raise errors.ReshapeFailed(
                error=f"consumer {consumer} holds {left} more {source.resource_class} of "
                f"{whole.name} than its virtual functions have; delete the consumer's allocation "
                "if it is stale, or set [gpu]vf_providers = per_pf"
            )


def _root_to_gpus(situation: Situation, allocations: Allocations, devices_of: DevicesOf) -> None:
    """Each consumer's vGPUs go where its mediated devices are."""
    counting = _vgpu_providers(situation)
    if not counting:
        return
    faults = []
    for resource_class in sorted(_vgpu_classes(situation)):
        source = Unit(situation.identities.root, resource_class)
        for consumer, record in sorted(allocations.items()):
            amount = held(record, source)
            if not amount:
                continue
            targets = _providers_of_mdevs(situation, consumer, devices_of)
            if sum(targets.values()) != amount:
                faults.append(
                    f"consumer {consumer} holds {amount} {resource_class} on "
                    f"{situation.root.name}, and {sum(targets.values())} mediated devices of it "
                    "are on this host's GPUs"
                )
                continue
            for unit, count in sorted(targets.items(), key=lambda item: item[0].provider):
                shift(record, source, unit, count)
    if faults:
        raise errors.ReshapeFailed(
            error="; ".join(faults) + ". Start the guests so that their devices exist again, or "
            "delete allocations of guests that are gone"
        )


def _providers_of_mdevs(
    situation: Situation, consumer: str, devices_of: DevicesOf
) -> Counter[Unit]:
    counting = _vgpu_providers(situation)
    whole_of = {vf.address: gpu.address for gpu in situation.topology.gpus for vf in gpu.vfs}
    targets: Counter[Unit] = Counter()
    for parent in _parents(consumer, devices_of):
        wanted = counting.get(parent) or counting.get(whole_of.get(parent, parent))
        if wanted is None:
            LOG.warning(
                "Consumer %s has a mediated device on %s, for which no vGPUs are reported",
                consumer,
                parent,
            )
            continue
        targets[_unit(situation, wanted)] += 1
    return targets


def _parents(consumer: str, devices_of: DevicesOf) -> list[PciAddress]:
    devices = devices_of(consumer)
    return [mdev.parent for mdev in devices.mdevs] if devices else []
