"""vGPUs of one physical GPU: how many of which type its functions have, and can still make.

The kernel counts per function, as if the others made none. NVML reports what the GPU bears:

    on GPU instances (MIG)     as many as the instances of the type's profile carry
    of one size, by time       all vGPUs of the GPU have the size of the first
    of mixed sizes, by time    each has a place in the GPU's memory, and no two overlap
    mode not reported          shares: of a type of which 4 fit, 2 leave half of the GPU

What exists is counted even where it should not fit. Of what NVML does not report the kernel's
count stands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import TypeAlias

from msgspec import Struct

from compute_agent.discovery.facts import Mdev, MdevType, PciAddress, PhysicalGpu, VgpuType
from compute_agent.virt.layout.options import MdevTypeOptions

Offer: TypeAlias = Mapping[PciAddress, tuple[MdevTypeOptions, int]]
"""By function: the type that is enabled for it, and how many vGPUs it has or can make."""


class Maker(Struct, frozen=True):
    """A function that makes mediated devices: a GPU without SR-IOV, or one VF of a GPU with it."""

    address: PciAddress
    gpu: PciAddress
    types: tuple[MdevType, ...]
    mdevs: tuple[Mdev, ...]

    def count(self, type_id: str) -> int:
        """Return how many of a type exist."""
        return sum(mdev.type_id == type_id for mdev in self.mdevs)


def makers(gpu: PhysicalGpu) -> tuple[Maker, ...]:
    """Return what makes mediated devices of this GPU, by address."""
    whole = Maker(gpu.address, gpu.address, gpu.mdev_types, gpu.mdevs)
    parts = [Maker(vf.address, gpu.address, vf.mdev_types, vf.mdevs) for vf in gpu.vfs]
    return tuple(m for m in (whole, *parts) if m.types or m.mdevs)


def offer_of(gpu: PhysicalGpu, types: Sequence[MdevTypeOptions], warnings: list[str]) -> Offer:
    """Return what each function alone has or can make, by the kernel's count; 0 = none any more."""
    offer = {}
    for maker in makers(gpu):
        chosen_type = type_for(maker, types)
        if chosen_type is None:
            continue
        count = _count(maker, chosen_type)
        if count is None:
            offers = ", ".join(t.id for t in maker.types) or "nothing"
            warnings.append(
                f"{maker.address} does not offer the mdev type {chosen_type.type_id} that is "
                f"enabled for it; it offers {offers}: no vGPUs are reported for it"
            )
            continue
        offer[maker.address] = (chosen_type, count)
    return offer


def fitting(gpu: PhysicalGpu, offer: Offer, *, is_limited: bool) -> Offer:
    """Return what is left of an offer where the functions share one GPU.

    Those that have made vGPUs come first. Then each type gets one in turn, on the functions with
    the lowest addresses.

    :param is_limited: the types' own limits count for the GPU, not for each function.
    """
    room = _Room(gpu)
    makers_by_address = {maker.address: maker for maker in makers(gpu)}
    counts = dict.fromkeys(offer, 0)
    taken_counts: Counter[str] = Counter()
    turns_of_functions: list[tuple[int, PciAddress]] = []
    for maker in makers_by_address.values():
        for mdev in maker.mdevs:
            room.put(mdev.type_id)
    for address, (chosen_type, count) in offer.items():
        counts[address] = min(count, makers_by_address[address].count(chosen_type.type_id))
        taken_counts[chosen_type.type_id] += counts[address]
    turns: Counter[str] = Counter()
    for address, (chosen_type, count) in sorted(offer.items()):
        for _unit in range(count - counts[address]):
            turns_of_functions.append((turns[chosen_type.type_id], address))
            turns[chosen_type.type_id] += 1
    full_types: set[str] = set()  # what does not fit once does not fit beside more
    for _turn, address in sorted(turns_of_functions):
        chosen_type = offer[address][0]
        most = chosen_type.max_instances if is_limited else None
        if chosen_type.type_id in full_types or (
            most is not None and taken_counts[chosen_type.type_id] >= most
        ):
            continue
        if not room.has_place_for(chosen_type.type_id):
            full_types.add(chosen_type.type_id)
            continue
        room.put(chosen_type.type_id)
        taken_counts[chosen_type.type_id] += 1
        counts[address] += 1
    return {
        address: (chosen_type, counts[address]) for address, (chosen_type, _count) in offer.items()
    }


def left_out(gpu: PhysicalGpu, offer: Offer, fitting_offer: Offer) -> Iterator[str]:
    """Name enabled types that functions offer and of which the GPU has room for none."""
    offered_types = {chosen_type.type_id for chosen_type, count in offer.values() if count}
    fitted_types = {chosen_type.type_id for chosen_type, count in fitting_offer.values() if count}
    if not offered_types - fitted_types:
        return
    types = ", ".join(sorted(offered_types - fitted_types)) + (
        f" beside {', '.join(sorted(fitted_types))}" if fitted_types else ""
    )
    advice = (
        "make GPU instances of their profile (nvidia-smi mig -cgi)"
        if gpu.mig_enabled
        else "switch mixed sizes on (nvidia-smi vgpu -shm 1), or enable one type for the GPU"
        if fitted_types and gpu.vgpu_sizes_mixed is False
        else "lower max_instances of the others, or enable one type for the GPU"
        if fitted_types
        else "another type may fit (nvidia-smi vgpu -c)"
    )
    yield (f"GPU {gpu.address} has no room for vGPUs of type {types}: none are reported; {advice}")


def most_per_guest(gpu: PhysicalGpu, types: Sequence[str]) -> int | None:
    """Return how many vGPUs of these types one guest may have, by NVML; None = not reported."""
    known_limits = [
        kind.max_instances_per_guest
        for kind in gpu.vgpu_types
        if kind.id in types and kind.max_instances_per_guest
    ]
    return min(known_limits, default=None)


def type_for(maker: Maker, types: Sequence[MdevTypeOptions]) -> MdevTypeOptions | None:
    """Return a type that names the maker, else one of its GPU, else the first without devices."""
    for address in (maker.address, maker.gpu):
        for mdev_type in types:
            if address in mdev_type.device_addresses:
                return mdev_type
    return next((mdev_type for mdev_type in types if not mdev_type.device_addresses), None)


def _count(maker: Maker, chosen_type: MdevTypeOptions) -> int | None:
    """None: the maker has nothing to do with this type."""
    existing_count = maker.count(chosen_type.type_id)
    others = len(maker.mdevs) - existing_count
    available = {t.id: t.available_instances for t in maker.types}
    if chosen_type.type_id not in available and not existing_count:
        return 0 if others else None
    total = existing_count + (0 if others else available.get(chosen_type.type_id, 0))
    if chosen_type.max_instances is not None and maker.address == maker.gpu:
        total = min(total, chosen_type.max_instances)
    return total


class _Room:
    """What of a GPU its vGPUs take, as far as NVML reports it."""

    def __init__(self, gpu: PhysicalGpu) -> None:
        self._kinds = {kind.id: kind for kind in gpu.vgpu_types}
        self._has_mixed_sizes = gpu.vgpu_sizes_mixed
        self._parts = (
            None
            if gpu.gpu_instances is None
            else Counter(part.profile_id for part in gpu.gpu_instances)
        )
        self._taken_counts: Counter[str] = Counter()

    def put(self, type_id: str) -> None:
        """Count a vGPU, whether there is a place for it or not."""
        if type_id in self._kinds:
            self._taken_counts[type_id] += 1

    def has_place_for(self, type_id: str) -> bool:
        """Whether one more of the type fits; what NVML does not report does."""
        kind = self._kinds.get(type_id)
        if kind is None:
            return True
        if kind.max_instances is not None and self._taken_counts[type_id] >= kind.max_instances:
            return False
        if kind.gpu_instance_profile is not None and self._parts is not None:
            return self._has_part_for(kind, self._parts[kind.gpu_instance_profile])
        if self._has_mixed_sizes and kind.placements:
            return self._can_be_placed(type_id)
        if len(self._taken_counts) == 0 or set(self._taken_counts) == {type_id}:
            return True
        if self._has_mixed_sizes is False and not self._is_of_their_size(kind):
            return False
        return self._leaves_a_share(type_id)

    def _has_part_for(self, kind: VgpuType, parts: int) -> bool:
        wanted_counts = self._taken_counts + Counter({kind.id: 1})
        needed_parts = 0
        for type_id, amount in wanted_counts.items():
            other = self._kinds[type_id]
            if other.gpu_instance_profile == kind.gpu_instance_profile:
                needed_parts += -(-amount // (other.max_instances_per_gpu_instance or 1))
        return needed_parts <= parts

    def _is_of_their_size(self, kind: VgpuType) -> bool:
        return all(
            type_id == kind.id
            or (
                kind.framebuffer_mib is not None
                and self._kinds[type_id].framebuffer_mib == kind.framebuffer_mib
            )
            for type_id in self._taken_counts
        )

    def _leaves_a_share(self, type_id: str) -> bool:
        wanted_counts = self._taken_counts + Counter({type_id: 1})
        shares = (
            Fraction(amount, most)
            for kind_id, amount in wanted_counts.items()
            if (most := self._kinds[kind_id].max_instances)
        )
        return sum(shares) <= 1

    def _can_be_placed(self, type_id: str) -> bool:
        """Whether all have places that do not overlap, the largest put first."""
        wanted_counts = self._taken_counts + Counter({type_id: 1})
        kinds = [self._kinds[kind_id] for kind_id in wanted_counts]
        if any(not kind.placements for kind in kinds):
            return self._leaves_a_share(type_id)
        used_ranges: list[tuple[int, int]] = []
        for kind in sorted(kinds, key=lambda kind: (-kind.placement_size, kind.id)):
            size = kind.placement_size
            free = (
                start
                for start in kind.placements
                if all(start + size <= begin or start >= end for begin, end in used_ranges)
            )
            for _unit in range(wanted_counts[kind.id]):
                start = next(free, None)
                if start is None:
                    return False
                used_ranges.append((start, start + size))
        return True
