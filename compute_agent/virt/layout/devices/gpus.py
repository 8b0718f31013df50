"""Physical GPUs: one provider each, which counts exactly one thing.

    vGPUs (VGPU or a custom class)   an enabled mdev type is for this GPU
    the whole card (a PCI class)     [pci]device_spec names it
    MIG devices (CUSTOM_MIG_...)     [gpu]mig_classes
    nothing                          only traits, in the nested layout

A GPU with SR-IOV makes one vGPU per virtual function. They are counted on the GPU's provider
(`per_pf`) or get a provider each (`per_vf`).

Of MIG only what exists is counted, each device a unit by its uuid: what could still be made shares
the room of all profiles, so no class could be promised it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from compute_agent.discovery.facts import GpuVf, HostTopology, MigDevice, PciAddress, PhysicalGpu
from compute_agent.provider_tree.trait_names import CUSTOM_GPU_UNHEALTHY, NVLINK_PREFIX, XGMI_PREFIX
from compute_agent.virt.layout import names
from compute_agent.virt.layout.device_spec import custom_name
from compute_agent.virt.layout.devices import vgpus
from compute_agent.virt.layout.devices.parents import DeviceParents
from compute_agent.virt.layout.devices.pci import MANAGED
from compute_agent.virt.layout.devices.vgpus import Offer
from compute_agent.virt.layout.options import GpuOptions, MdevTypeOptions
from compute_agent.virt.layout.wanted import WantedProvider, WantedRecord, slots
from compute_agent.virt.traits import standard_traits

MDEV_TYPE_PREFIX = "CUSTOM_MDEV_"
MIG_CLASS_PREFIX = "CUSTOM_MIG_"
CUDA_PREFIX = "HW_GPU_CUDA_COMPUTE_CAPABILITY_"
MIG_TRAIT = "CUSTOM_GPU_MIG"


class GpuLayout(Struct, frozen=True):
    providers: tuple[WantedProvider, ...]
    warnings: tuple[str, ...]
    errors: tuple[str, ...]


def gpu_keys(gpus: Sequence[PhysicalGpu]) -> dict[PciAddress, str]:
    """Return the stable key of each GPU: uuid, serial or address, whichever is unique first.

    The first two move with the card from slot to slot; boards with two GPUs share a serial.
    """
    serials = Counter(gpu.serial for gpu in gpus)
    return {
        gpu.address: gpu.uuid
        or (gpu.serial if gpu.serial and serials[gpu.serial] == 1 else gpu.address)
        for gpu in gpus
    }


def vf_key(gpu_key: str, gpu: PhysicalGpu, vf: GpuVf) -> str:
    return vf.address if gpu_key == gpu.address else f"{gpu_key}:vf:{vf.index}"


def lay_out_gpus(
    root_name: str,
    topology: HostTopology,
    options: GpuOptions,
    parents: DeviceParents,
    *,
    claimed_addresses: frozenset[PciAddress],
    existing_names: frozenset[str],
    is_nested: bool,
) -> GpuLayout:
    """Lay out every GPU.

    :param claimed_addresses: functions that the PCI layout counts; a GPU among them gets its traits
        here and its inventory there.
    :param existing_names: names of the providers placement has under this root.
    """
    providers: list[WantedProvider] = []
    warnings: list[str] = []
    errors: list[str] = []
    keys = gpu_keys(topology.gpus)
    groups = link_traits(topology.gpus) if options.nvlink_traits else {}
    for gpu in topology.gpus:
        if gpu.critical_xid is not None:
            warnings.append(
                f"GPU {gpu.address} reported Xid {gpu.critical_xid} and is taken out: all that is "
                "left of it is reserved until the machine is booted or an operator clears the "
                "fault (RPC clear_fault)"
            )
        offer = vgpus.offer_of(gpu, options.mdev_types, warnings)
        taken_addresses = claimed_addresses.intersection(
            (gpu.address, *(vf.address for vf in gpu.vfs))
        )
        if taken_addresses:
            errors.extend(_doubly_used(gpu, taken_addresses, offer))
            offer = {}
        per_vf = bool(gpu.vfs) and _per_vf(root_name, gpu, options, existing_names)
        fitting_offer = vgpus.fitting(gpu, offer, is_limited=not per_vf)
        warnings.extend(vgpus.left_out(gpu, offer, fitting_offer))
        laid_out_gpu = _LaidOutGpu(
            root_name,
            keys[gpu.address],
            gpu,
            options,
            parents.of(gpu.address, gpu.numa_node, options.numa_node_override),
            *_traits(gpu, groups.get(gpu.address), options),
        )
        if offer and per_vf:
            providers.extend(laid_out_gpu.vf_providers(fitting_offer))
            offer, fitting_offer = {}, {}
        provider = laid_out_gpu.provider(offer, fitting_offer, errors)
        if taken_addresses:
            name = names.pci_name(root_name, gpu.address)
            provider = replace(provider, name=name, inventory={})
        if is_nested or taken_addresses or offer or provider.inventory:
            providers.append(provider)
    return GpuLayout(tuple(providers), tuple(warnings), tuple(errors))


class _LaidOutGpu(Struct, frozen=True):
    """A GPU on its way to providers.

    :ivar traits: of the silicon.
    :ivar absent_prefixes: of traits that no other silicon may leave behind.
    """

    root_name: str
    key: str
    gpu: PhysicalGpu
    options: GpuOptions
    parent: str
    traits: frozenset[str]
    absent_prefixes: tuple[str, ...]

    def vf_providers(self, fitting_offer: Offer) -> Iterator[WantedProvider]:
        for vf in self.gpu.vfs:
            if vf.address in fitting_offer:
                chosen_type, count = fitting_offer[vf.address]
                units = {chosen_type.resource_class: slots(vf.address, count)}
                own_offer = {vf.address: (chosen_type, count)}
                inventory = _vgpu_inventory(self.gpu, own_offer, self.options)
                key = vf_key(self.key, self.gpu, vf)
                yield self._provider(key, vf.address, own_offer, inventory, units)

    def provider(self, offer: Offer, fitting_offer: Offer, errors: list[str]) -> WantedProvider:
        gpu = self.gpu
        inventory = _vgpu_inventory(gpu, fitting_offer, self.options)
        units: dict[str, tuple[str, ...]] = {}
        for address, (chosen_type, count) in offer.items():
            # any of the functions may be the one that makes it
            places = slots(address, count if gpu.vfs else fitting_offer[address][1])
            resource_class = chosen_type.resource_class
            units[resource_class] = (*units.get(resource_class, ()), *places)
        mig: dict[str, tuple[str, ...]] = {}
        if self.options.mig_classes:
            for device in sorted(gpu.mig_devices, key=_place):
                resource_class = custom_name(f"MIG {device.profile}")
                mig[resource_class] = (*mig.get(resource_class, ()), device.uuid)
        if mig and inventory:
            errors.append(
                f"GPU {gpu.address} is cut into MIG devices that [gpu]mig_classes reports and "
                "makes vGPUs of an enabled type: both would count the same silicon, switch one of "
                "them off"
            )
            mig = {}
        inventory |= {rc: WantedRecord(len(uuids)) for rc, uuids in sorted(mig.items())}
        return self._provider(self.key, gpu.address, fitting_offer, inventory, units | mig)

    def _provider(
        self,
        key: str,
        address: PciAddress,
        offer: Offer,
        inventory: Mapping[str, WantedRecord],
        units: Mapping[str, tuple[str, ...]],
    ) -> WantedProvider:
        traits = self.traits
        if self.options.type_traits:
            traits |= {custom_name(f"MDEV {t.type_id}") for t, count in offer.values() if count}
        return WantedProvider(
            key,
            names.gpu_name(self.root_name, address),
            parent=self.parent,
            inventory=inventory,
            traits=traits,
            absent_traits=frozenset({MIG_TRAIT, MANAGED}) - self.traits,
            absent_prefixes=(*self.absent_prefixes, MDEV_TYPE_PREFIX),
            address=address,
            units=units,
        )


def _traits(
    gpu: PhysicalGpu, group: str | None, options: GpuOptions
) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the traits of the silicon, and the prefixes of those that it may not have besides."""
    traits = set()
    prefixes = [CUDA_PREFIX, f"CUSTOM_{CUDA_PREFIX}"]
    if gpu.compute_capability is not None:
        major, minor = gpu.compute_capability
        trait = f"{CUDA_PREFIX}V{major}_{minor}"
        traits.add(trait if trait in standard_traits() else f"CUSTOM_{trait}")
    if gpu.model:
        traits.add(custom_name(f"GPU {gpu.model}"))
        prefixes.append(custom_name(f"GPU {gpu.model.split()[0]}") + "_")
    if gpu.mig_enabled:
        traits.add(MIG_TRAIT)
    if gpu.critical_xid is not None:
        traits.add(CUSTOM_GPU_UNHEALTHY)
    if group is not None:
        traits.add(group)
    if gpu.nvlinks is not None or not options.nvlink_traits:
        prefixes.append(NVLINK_PREFIX)
    prefixes.append(XGMI_PREFIX)
    return frozenset(traits), tuple(prefixes)


def gpu_facts(topology: HostTopology) -> list[dict[str, Any]]:
    """Return what of GPUs is no inventory, as plain JSON types, for those who look at the host."""
    return [
        {
            "address": gpu.address,
            "uuid": gpu.uuid,
            "model": gpu.model,
            "memory_mib": gpu.memory_mib,
            "mig_devices": [
                {name: getattr(device, name) for name in ("uuid", "profile", "start", "size")}
                for device in sorted(gpu.mig_devices, key=_place)
            ],
            "mig_remaining": dict(gpu.mig_remaining),
            "nvlinks": {link.remote: link.links for link in gpu.nvlinks or ()},
        }
        for gpu in topology.gpus
    ]


def link_traits(gpus: Sequence[PhysicalGpu]) -> dict[PciAddress, str]:
    """Return the trait of the group of each GPU that reaches another one of the host."""
    hives: dict[str, list[PciAddress]] = {}
    for gpu in gpus:
        if gpu.link_group is not None:
            hives.setdefault(gpu.link_group, []).append(gpu.address)
    linked_hives = sorted(members for members in hives.values() if len(members) > 1)
    return {
        member: f"{XGMI_PREFIX}{number}"
        for number, members in enumerate(linked_hives)
        for member in members
    } | {address: f"{NVLINK_PREFIX}{number}" for address, number in nvlink_groups(gpus).items()}


def nvlink_groups(gpus: Sequence[PhysicalGpu]) -> dict[PciAddress, int]:
    """Return the group of each GPU that reaches another one of the host through NVLinks.

    Directly, over a third GPU, or over a switch. Groups are numbered from 0, by the lowest address
    in each.
    """
    own = {gpu.address for gpu in gpus}
    neighbours: dict[PciAddress, set[PciAddress]] = {}
    for gpu in gpus:
        reach = {gpu.address}
        reach.update(link.remote for link in gpu.nvlinks or () if link.kind != "cpu")
        together = set().union(*(neighbours.get(device, {device}) for device in reach))
        neighbours.update((device, together) for device in together)
    groups = {tuple(sorted(together & own)) for together in neighbours.values()}
    linked_groups = sorted(members for members in groups if len(members) > 1)
    return {member: number for number, members in enumerate(linked_groups) for member in members}


def _doubly_used(
    gpu: PhysicalGpu,
    taken_addresses: frozenset[PciAddress],
    offer: Offer,
) -> Iterator[str]:
    whole = gpu.address in taken_addresses
    cut_addresses = sorted(
        a for a, (_, count) in offer.items() if count and (whole or a in taken_addresses)
    )
    if cut_addresses:
        yield (
            f"[pci]device_spec gives {', '.join(sorted(taken_addresses))} to guests, and "
            f"{', '.join(cut_addresses)} make vGPUs of an enabled type: a GPU is either given "
            "whole or cut, take it out of one of the two"
        )


def _per_vf(
    root_name: str, gpu: PhysicalGpu, options: GpuOptions, existing_names: frozenset[str]
) -> bool:
    if options.vf_providers != "auto":
        return options.vf_providers == "per_vf"
    return any(
        name in existing_names
        for vf in gpu.vfs
        for name in (names.gpu_name(root_name, vf.address), names.pci_name(root_name, vf.address))
    )


def _vgpu_inventory(
    gpu: PhysicalGpu, fitting_offer: Offer, options: GpuOptions
) -> dict[str, WantedRecord]:
    counts: Counter[MdevTypeOptions] = Counter()
    for chosen_type, count in fitting_offer.values():
        counts[chosen_type] += count
    types_of: dict[str, dict[str, int]] = {}
    for chosen_type, count in counts.items():
        if chosen_type.max_instances is not None:
            count = min(count, chosen_type.max_instances)
        if count:
            types_of.setdefault(chosen_type.resource_class, {})[chosen_type.type_id] = count
    records = {}
    for resource_class, amounts in sorted(types_of.items()):
        total = sum(amounts.values())
        limits = (options.max_vgpus_per_guest, vgpus.most_per_guest(gpu, tuple(amounts)), total)
        records[resource_class] = WantedRecord(total, max_unit=min(n for n in limits if n))
    return records


def _place(device: MigDevice) -> tuple[int, int, int, str]:
    start = 0 if device.start is None else device.start
    return start, device.gpu_instance, device.compute_instance, device.uuid
