"""Physical GPUs: one provider each, which counts exactly one thing.

    vGPUs (VGPU or a custom class)   an enabled mdev type is for this GPU
    the whole card (a PCI class)     [pci]device_spec names it
    MIG devices (CUSTOM_MIG_...)     [gpu]mig_classes
    nothing                          only traits, in the nested layout

A GPU with SR-IOV makes one vGPU per virtual function. They are counted on the GPU's provider
(`per_pf`) or get a provider each (`per_vf`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from compute_agent.discovery.facts import (
    GpuVf,
    HostTopology,
    Mdev,
    MdevType,
    PciAddress,
    PhysicalGpu,
)
from compute_agent.virt.cpu_traits import standard_traits
from compute_agent.virt.layout import names
from compute_agent.virt.layout.application import UNHEALTHY
from compute_agent.virt.layout.device_spec import custom_name
from compute_agent.virt.layout.options import GpuOptions, MdevTypeOptions
from compute_agent.virt.layout.parents import DeviceParents
from compute_agent.virt.layout.pci import MANAGED
from compute_agent.virt.layout.wanted import WantedProvider, WantedRecord, slots

MDEV_TYPE_PREFIX = "CUSTOM_MDEV_"
MIG_CLASS_PREFIX = "CUSTOM_MIG_"
CUDA_PREFIX = "HW_GPU_CUDA_COMPUTE_CAPABILITY_"
MIG_TRAIT = "CUSTOM_GPU_MIG"


@dataclass(frozen=True, slots=True)
class GpuLayout:
    providers: tuple[WantedProvider, ...]
    warnings: tuple[str, ...]
    errors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Maker:
    """A function that makes mediated devices: a GPU without SR-IOV, or one VF of a GPU with it."""

    address: PciAddress
    gpu: PciAddress
    types: tuple[MdevType, ...]
    mdevs: tuple[Mdev, ...]


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


def makers(gpu: PhysicalGpu) -> tuple[Maker, ...]:
    """Return what makes mediated devices of this GPU, by address."""
    whole = Maker(gpu.address, gpu.address, gpu.mdev_types, gpu.mdevs)
    parts = [Maker(vf.address, gpu.address, vf.mdev_types, vf.mdevs) for vf in gpu.vfs]
    return tuple(m for m in (whole, *parts) if m.types or m.mdevs)


def lay_out_gpus(
    root_name: str,
    topology: HostTopology,
    options: GpuOptions,
    parents: DeviceParents,
    *,
    claimed: frozenset[PciAddress],
    existing_names: frozenset[str],
    nested: bool,
) -> GpuLayout:
    """Lay out every GPU.

    :param claimed: functions that the PCI layout counts; a GPU among them gets its traits here
        and its inventory there.
    :param existing_names: names of the providers placement has under this root.
    """
    providers: list[WantedProvider] = []
    warnings: list[str] = []
    errors: list[str] = []
    keys = gpu_keys(topology.gpus)
    for gpu in topology.gpus:
        key = keys[gpu.address]
        if gpu.critical_xid is not None:
            warnings.append(
                f"GPU {gpu.address} reported Xid {gpu.critical_xid} and is taken out: all that is "
                "left of it is reserved until the machine was booted or an operator says that it "
                "is well (RPC clear_fault)"
            )
        offered = _vgpus(gpu, options, warnings)
        parent = parents.of(gpu.address, gpu.numa_node, options.numa_node_override)
        if taken := claimed.intersection((gpu.address, *(vf.address for vf in gpu.vfs))):
            errors.extend(_doubly_used(gpu, taken, offered))
            offered = {}
        if offered and gpu.vfs and _per_vf(root_name, gpu, options, existing_names):
            fitting = _fitting(gpu, offered)
            providers.extend(_vf_providers(root_name, key, gpu, fitting, options, parent))
            offered = {}
        provider = _gpu_provider(root_name, key, gpu, offered, options, parent, errors)
        if taken:
            name = names.pci_name(root_name, gpu.address)
            provider = replace(provider, name=name, inventory={})
        if nested or taken or offered or provider.inventory:
            providers.append(provider)
    return GpuLayout(tuple(providers), tuple(warnings), tuple(errors))


def gpu_traits(gpu: PhysicalGpu) -> tuple[frozenset[str], tuple[str, ...]]:
    """Traits of the silicon, and the prefixes of traits that no other silicon may leave behind."""
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
        traits.add(UNHEALTHY)
    return frozenset(traits), tuple(prefixes)


def _doubly_used(
    gpu: PhysicalGpu,
    taken: frozenset[PciAddress],
    offered: Mapping[PciAddress, tuple[MdevTypeOptions, int]],
) -> Iterator[str]:
    whole = gpu.address in taken
    cut = sorted(a for a, (_, count) in offered.items() if count and (whole or a in taken))
    if cut:
        yield (
            f"[pci]device_spec gives {', '.join(sorted(taken))} to guests, and "
            f"{', '.join(cut)} make vGPUs of an enabled type: a GPU is either given whole or "
            "cut, take it out of one of the two"
        )


def _vgpus(
    gpu: PhysicalGpu, options: GpuOptions, warnings: list[str]
) -> dict[PciAddress, tuple[MdevTypeOptions, int]]:
    """How many vGPUs of which type each maker of this GPU has or can make; 0 = none any more."""
    offered = {}
    for maker in makers(gpu):
        chosen = _type_for(maker, options.mdev_types)
        if chosen is None:
            continue
        count = _count(maker, chosen)
        if count is None:
            offers = ", ".join(t.id for t in maker.types) or "nothing"
            warnings.append(
                f"{maker.address} does not offer the mdev type {chosen.type_id} that is enabled "
                f"for it; it offers {offers}: no vGPUs are reported for it"
            )
            continue
        offered[maker.address] = (chosen, count)
    return offered


def _type_for(maker: Maker, types: Sequence[MdevTypeOptions]) -> MdevTypeOptions | None:
    """Return a type that names the maker, else one of its GPU, else the first if it names none."""
    for address in (maker.address, maker.gpu):
        for mdev_type in types:
            if address in mdev_type.device_addresses:
                return mdev_type
    return types[0] if types and not types[0].device_addresses else None


def _count(maker: Maker, chosen: MdevTypeOptions) -> int | None:
    """None: the maker has nothing to do with this type."""
    existing = sum(mdev.type_id == chosen.type_id for mdev in maker.mdevs)
    others = len(maker.mdevs) - existing
    available = {t.id: t.available_instances for t in maker.types}
    if chosen.type_id not in available and not existing:
        return 0 if others else None
    total = existing + (0 if others else available.get(chosen.type_id, 0))
    if chosen.max_instances is not None and maker.address == maker.gpu:
        total = min(total, chosen.max_instances)
    return total


def _fitting(
    gpu: PhysicalGpu, offered: Mapping[PciAddress, tuple[MdevTypeOptions, int]]
) -> dict[PciAddress, tuple[MdevTypeOptions, int]]:
    """Return what is left of an offer by what NVML reports to fit on the GPU, where it does.

    Each virtual function counts its own, and as many may be free as the card has functions. Those
    that have made vGPUs come first, then those with the lowest address.
    """
    made = {maker.address: len(maker.mdevs) for maker in makers(gpu)}
    room = _room(gpu)
    fitting = dict(offered)
    for address in sorted(offered, key=lambda address: (-made[address], address)):
        chosen, count = offered[address]
        room_left = room.get(chosen.type_id)
        if gpu.vfs and room_left is not None:
            fitting[address] = (chosen, min(count, room_left))
            room[chosen.type_id] = room_left - min(count, room_left)
    return fitting


def _room(gpu: PhysicalGpu) -> dict[str, int]:
    """How many vGPUs of each type fit on the GPU, by NVML; those that exist do."""
    made = Counter(mdev.type_id for maker in makers(gpu) for mdev in maker.mdevs)
    return {
        kind.id: max(kind.max_instances, made[kind.id])
        for kind in gpu.vgpu_types
        if kind.max_instances is not None
    }


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


def _vf_providers(
    root_name: str,
    key: str,
    gpu: PhysicalGpu,
    offered: Mapping[PciAddress, tuple[MdevTypeOptions, int]],
    options: GpuOptions,
    parent: str,
) -> Iterator[WantedProvider]:
    traits, prefixes = gpu_traits(gpu)
    for vf in gpu.vfs:
        if vf.address not in offered:
            continue
        chosen, count = offered[vf.address]
        yield WantedProvider(
            vf_key(key, gpu, vf),
            names.gpu_name(root_name, vf.address),
            parent=parent,
            inventory=_vgpu_inventory({chosen.resource_class: count}, options),
            traits=traits | _type_traits([chosen] if count else [], options),
            absent_traits=frozenset({MIG_TRAIT, MANAGED}) - traits,
            absent_prefixes=(*prefixes, MDEV_TYPE_PREFIX),
            address=vf.address,
            units={chosen.resource_class: slots(vf.address, count)},
        )


def _gpu_provider(
    root_name: str,
    key: str,
    gpu: PhysicalGpu,
    offered: Mapping[PciAddress, tuple[MdevTypeOptions, int]],
    options: GpuOptions,
    parent: str,
    errors: list[str],
) -> WantedProvider:
    counts: Counter[str] = Counter()
    units: dict[str, tuple[str, ...]] = {}
    limits: dict[str, int] = {}
    fitting = _fitting(gpu, offered)
    for address, (chosen, count) in offered.items():
        counts[chosen.resource_class] += fitting[address][1]
        # any of the functions may be the one that makes it
        known_units = units.get(chosen.resource_class, ())
        units[chosen.resource_class] = known_units + slots(address, count)
        if chosen.max_instances is not None:
            limits[chosen.resource_class] = chosen.max_instances
    totals = {rc: min(n, limits.get(rc, n)) for rc, n in sorted(counts.items())}
    traits, prefixes = gpu_traits(gpu)
    mig = _mig_counts(gpu) if options.mig_classes else {}
    if mig and any(totals.values()):
        errors.append(
            f"GPU {gpu.address} is cut into MIG devices that [gpu]mig_classes reports and makes "
            "vGPUs of an enabled type: both would count the same silicon, switch one of them off"
        )
        mig = {}
    inventory = _vgpu_inventory(totals, options) | {
        rc: WantedRecord(count) for rc, count in sorted(mig.items())
    }
    return WantedProvider(
        key,
        names.gpu_name(root_name, gpu.address),
        parent=parent,
        inventory=inventory,
        traits=traits | _type_traits([t for t, count in fitting.values() if count], options),
        absent_traits=frozenset({MIG_TRAIT, MANAGED}) - traits,
        absent_prefixes=(*prefixes, MDEV_TYPE_PREFIX),
        address=gpu.address,
        units=units,
    )


def _vgpu_inventory(totals: dict[str, int], options: GpuOptions) -> dict[str, WantedRecord]:
    most = options.max_vgpus_per_guest
    return {
        rc: WantedRecord(total, max_unit=min(total, most) if most else total)
        for rc, total in totals.items()
        if total
    }


def _type_traits(types: Sequence[MdevTypeOptions], options: GpuOptions) -> frozenset[str]:
    if not options.type_traits:
        return frozenset()
    return frozenset(custom_name(f"MDEV {t.type_id}") for t in types)


def _mig_counts(gpu: PhysicalGpu) -> Counter[str]:
    return Counter(custom_name(f"MIG {device.profile}") for device in gpu.mig_devices)
