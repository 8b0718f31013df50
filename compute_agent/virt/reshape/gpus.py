"""Allocations of vGPUs: from the root to GPUs, and between a GPU and its VFs.

Whether a reshape is due is asked of the tree. What moves is asked of the allocations: the tree may
have been edited half and lack providers and classes already of which something is still held.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from msgspec import Struct
from oslo_log import log

from compute_agent import errors
from compute_agent.discovery.facts import PciAddress, PhysicalGpu
from compute_agent.provider_tree import ProviderData, child_uuid
from compute_agent.virt.driver import Allocations
from compute_agent.virt.layout import names
from compute_agent.virt.layout.devices.gpus import MIG_CLASS_PREFIX, gpu_keys, vf_key
from compute_agent.virt.reshape.moves import (
    DevicesOf,
    Guests,
    Situation,
    Unit,
    held_amount,
    move_all,
    shift,
    used_amount,
)

LOG = log.getLogger(__name__)

VGPU = "VGPU"
_NOT_VGPU = ("PGPU", "CUSTOM_PCI_", MIG_CLASS_PREFIX)


def reasons(situation: Situation) -> Iterator[str]:
    view = _GpusOfSituation.of(situation)
    root = situation.root
    if view.counting:
        for resource_class in sorted(view.classes & root.inventory.keys()):
            yield f"{resource_class} moves from {root.name} to its GPUs"
    for gpu in _with_vfs(situation):
        if gpu.address in view.counting:
            for vf_provider in view.obsolete_vfs(gpu):
                if vf_provider.inventory:
                    yield f"vGPUs move from {vf_provider.name} to their GPU {gpu.address}"
        whole = view.obsolete_whole(gpu)
        if whole is not None and view.classes & whole.inventory.keys():
            yield f"vGPUs move from {whole.name} to its virtual functions"


def move(
    situation: Situation, allocations: Allocations, devices_of: DevicesOf, guests: Guests
) -> None:
    """Edit `allocations` in place. Raises ReshapeFailed naming consumers."""
    view = _GpusOfSituation.of(situation)
    _root_to_gpus(view, allocations, devices_of, guests)
    for gpu in _with_vfs(situation):
        if gpu.address in view.counting:
            for uuid in view.vf_sources(gpu):
                for resource_class in sorted(view.classes):
                    source = Unit(uuid, resource_class)
                    move_all(allocations, source, view.counting[gpu.address].unit)
        _whole_to_vfs(view, allocations, gpu, devices_of)


def _with_vfs(situation: Situation) -> Iterator[PhysicalGpu]:
    return (gpu for gpu in situation.topology.gpus if gpu.vfs)


class _VgpuCount(NamedTuple):
    """Where the layout counts vGPUs, and how many."""

    unit: Unit
    total: int


class _GpusOfSituation(Struct, frozen=True):
    """What concerns GPUs of a situation, by the address of the function."""

    situation: Situation
    counting: Mapping[PciAddress, _VgpuCount]
    classes: frozenset[str]
    """Classes vGPUs are or were counted under."""
    stored_providers: Mapping[PciAddress, ProviderData]
    """Providers that placement has."""

    @classmethod
    def of(cls, situation: Situation) -> _GpusOfSituation:
        functions = {
            function
            for gpu in situation.topology.gpus
            for function in (gpu.address, *(vf.address for vf in gpu.vfs))
        }
        counting = {}
        for wanted in situation.layout.children:
            classes = [rc for rc in wanted.inventory if not rc.startswith(_NOT_VGPU)]
            if wanted.address in functions and len(classes) == 1:
                unit = Unit(situation.identities.uuids[wanted.key], classes[0])
                counting[wanted.address] = _VgpuCount(unit, wanted.inventory[classes[0]].total)
        root_name = situation.layout.root.name
        stored_providers = {}
        for provider in situation.owned_providers:
            address = names.device_address(root_name, provider.name)
            if address is not None:
                stored_providers[address] = provider
        classes_of_vgpus = {VGPU, *(count.unit.resource_class for count in counting.values())}
        return cls(situation, counting, frozenset(classes_of_vgpus), stored_providers)

    def wanted_vfs(self, gpu: PhysicalGpu) -> dict[PciAddress, _VgpuCount]:
        return {
            vf.address: self.counting[vf.address] for vf in gpu.vfs if vf.address in self.counting
        }

    def obsolete_vfs(self, gpu: PhysicalGpu) -> list[ProviderData]:
        """Return the providers of single VFs that the layout no longer has."""
        wanted_uuids = set(self.situation.identities.uuids.values())
        stored_providers = (self.stored_providers.get(vf.address) for vf in gpu.vfs)
        return [
            provider
            for provider in stored_providers
            if provider and provider.uuid not in wanted_uuids
        ]

    def obsolete_whole(self, gpu: PhysicalGpu) -> ProviderData | None:
        """Return the provider that placement has for the GPU, if its VFs now count separately."""
        return self.stored_providers.get(gpu.address) if self.wanted_vfs(gpu) else None

    def vf_sources(self, gpu: PhysicalGpu) -> list[str]:
        """Uuids of VF providers that the layout no longer has, be they in the tree or not."""
        key = gpu_keys(self.situation.topology.gpus)[gpu.address]
        is_lost = self._lost_uuids(vf_key(key, gpu, vf) for vf in gpu.vfs)
        return [*(provider.uuid for provider in self.obsolete_vfs(gpu)), *is_lost]

    def whole_sources(self, gpu: PhysicalGpu) -> list[str]:
        """Uuids under which the GPU itself counted what its VFs count now, likewise."""
        if not self.wanted_vfs(gpu):
            return []
        key = gpu_keys(self.situation.topology.gpus)[gpu.address]
        stored_provider = self.stored_providers.get(gpu.address)
        return [*([stored_provider.uuid] if stored_provider else []), *self._lost_uuids([key])]

    def _lost_uuids(self, keys: Iterable[str]) -> list[str]:
        """Return the uuids that a layout gives to these keys, of those that the tree has not."""
        uuids = (child_uuid(self.situation.identities.root, key) for key in keys)
        return [uuid for uuid in uuids if not self.situation.tree.exists(uuid)]


def _whole_to_vfs(
    view: _GpusOfSituation, allocations: Allocations, gpu: PhysicalGpu, devices_of: DevicesOf
) -> None:
    """Each vGPU goes to the VF its guest has, or where that is unknown to the first free one."""
    wholes = view.whole_sources(gpu)
    if not wholes:
        return
    vfs = view.wanted_vfs(gpu)
    units = {address: count.unit for address, count in vfs.items()}
    free = {
        address: count.total - used_amount(allocations, count.unit)
        for address, count in vfs.items()
    }
    sources = [Unit(uuid, rc) for uuid in wholes for rc in sorted(view.classes)]
    holders = [
        (consumer, record, source)
        for consumer, record in sorted(allocations.items())
        for source in sources
        if held_amount(record, source)
    ]
    unknown_units: list[tuple[str, dict[str, Any], Unit]] = []
    for consumer, record, source in holders:
        for parent in _parents(consumer, devices_of):
            if parent in units and held_amount(record, source):
                shift(record, source, units[parent], 1)
                free[parent] -= 1
        if held_amount(record, source):
            unknown_units.append((consumer, record, source))
    for consumer, record, source in unknown_units:
        for address, unit in units.items():
            amount = min(held_amount(record, source), max(free[address], 0))
            shift(record, source, unit, amount)
            free[address] -= amount
        if units_left := held_amount(record, source):
            raise errors.ReshapeFailed(
                error=f"consumer {consumer} holds {units_left} more {source.resource_class} of "
                f"{view.situation.name_of(source.provider)} than its virtual functions "
                "have; delete the consumer's allocation if it is stale, or set "
                "[gpu]vf_providers = per_pf"
            )


def _root_to_gpus(
    view: _GpusOfSituation, allocations: Allocations, devices_of: DevicesOf, guests: Guests
) -> None:
    """Each consumer's vGPUs go where its mediated devices are.

    Where none are seen they go where devices exist that nobody accounts for, else where most is
    free: no source of instances names the GPU of a guest.
    """
    if not view.counting:
        return
    situation = view.situation
    faults = []
    unseen_holders: list[tuple[str, dict[str, Any], Unit]] = []
    for resource_class in sorted(view.classes):
        source = Unit(situation.identities.root, resource_class)
        for consumer, record in sorted(allocations.items()):
            amount = held_amount(record, source)
            if not amount:
                continue
            targets = _providers_of_mdevs(view, consumer, devices_of)
            if not targets and _may_be_unseen(consumer, record, devices_of, guests):
                unseen_holders.append((consumer, record, source))
                continue
            if sum(targets.values()) != amount:
                faults.append(
                    f"consumer {consumer} holds {amount} {resource_class} on "
                    f"{situation.root.name}, and {sum(targets.values())} mediated devices of it "
                    "are on this host's GPUs"
                )
                continue
            for unit, count in sorted(targets.items(), key=lambda item: item[0].provider):
                shift(record, source, unit, count)
    faults += _by_rule(view, allocations, unseen_holders)
    if faults:
        raise errors.ReshapeFailed(
            error="; ".join(faults) + ". Start the guests so that their devices exist again, or "
            "delete allocations of guests that are gone"
        )


def _may_be_unseen(
    consumer: str, record: Mapping[str, Any], devices_of: DevicesOf, guests: Guests
) -> bool:
    """Whether a consumer may hold vGPUs that this driver cannot see.

    A migration has no guest of its own, a stopped guest no mediated device, and a driver that lists
    no guests sees none of them.
    """
    if record.get("consumer_type") == "MIGRATION" or guests() is None:
        return True
    devices = devices_of(consumer)
    return devices is not None and not devices.mdevs


def _by_rule(
    view: _GpusOfSituation,
    allocations: Allocations,
    holders: Iterable[tuple[str, dict[str, Any], Unit]],
) -> Iterator[str]:
    """Move what nobody sees to GPUs, the largest holders first; yield what has no room."""
    free: dict[Unit, int] = {}
    unexplained: dict[Unit, int] = {}
    for unit, total in view.counting.values():
        used = used_amount(allocations, unit)
        free[unit] = total - used
        unexplained[unit] = -used
    for gpu in view.situation.topology.gpus:
        for address, mdevs in [
            (gpu.address, gpu.mdevs),
            *((vf.address, vf.mdevs) for vf in gpu.vfs),
        ]:
            maker = view.counting.get(address) or view.counting.get(gpu.address)
            if maker is not None:
                unexplained[maker.unit] += len(mdevs)
    for consumer, record, source in sorted(
        holders, key=lambda holder: -held_amount(holder[1], holder[2])
    ):
        while amount := held_amount(record, source):

            def rank(unit: Unit, amount: int = amount) -> tuple[int, int, int, str]:
                extra = max(unexplained[unit], 0)
                return min(extra, amount, free[unit]), -extra, free[unit], unit.provider

            unit = max(free, key=rank)
            count = min(amount, free[unit], rank(unit)[0] or amount)
            if count <= 0:
                yield (
                    f"consumer {consumer} holds {amount} {source.resource_class} on "
                    f"{view.situation.root.name}, and no GPU of this host has room for it"
                )
                break
            shift(record, source, unit, count)
            free[unit] -= count
            unexplained[unit] -= count
            LOG.info(
                "Consumer %s shows no mediated device here: %d of its vGPUs go to %s, which has "
                "devices of nobody or else most free.",
                consumer,
                count,
                view.situation.name_of(unit.provider),
            )


def _providers_of_mdevs(
    view: _GpusOfSituation, consumer: str, devices_of: DevicesOf
) -> Counter[Unit]:
    gpus = view.situation.topology.gpus
    whole_of = {vf.address: gpu.address for gpu in gpus for vf in gpu.vfs}
    targets: Counter[Unit] = Counter()
    for parent in _parents(consumer, devices_of):
        vgpu_provider = view.counting.get(parent) or view.counting.get(whole_of.get(parent, parent))
        if vgpu_provider is None:
            LOG.warning(
                "Consumer %s has a mediated device on %s, where no vGPUs are reported: nothing is "
                "allocated for it. Name its type in [devices]enabled_mdev_types.",
                consumer,
                parent,
            )
            continue
        targets[vgpu_provider.unit] += 1
    return targets


def _parents(consumer: str, devices_of: DevicesOf) -> list[PciAddress]:
    devices = devices_of(consumer)
    return [mdev.parent for mdev in devices.mdevs] if devices else []
