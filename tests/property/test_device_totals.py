"""Totals of devices: never more than the hardware bears, never less than exists, units to match.

The oracle for vGPUs searches all places by trial, and knows nothing of the order in which the
layout hands them out.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from compute_agent.discovery.facts import (
    CellId,
    GpuInstance,
    GpuVf,
    HostTopology,
    Mdev,
    MdevType,
    MigDevice,
    PhysicalGpu,
    VgpuType,
)
from compute_agent.discovery.pci_address import pci_address
from compute_agent.virt.fake.topology import MachineSize, fake_topology
from compute_agent.virt.layout import LayoutOptions, lay_out
from compute_agent.virt.layout.options import GpuOptions, MdevTypeOptions, NicOptions
from compute_agent.virt.layout.wanted import HostLayout

ADDRESS = pci_address("0000:84:00.0")
KINDS = ("nvidia-1", "nvidia-2", "nvidia-3")
MODES = ("MIG", "mixed sizes", "one size", "not reported")
NOTHING = MachineSize(cells=1, cpus_per_cell=4, memory_mib_per_cell=8192, gpus=0, nics=0)

# Strategies that are made while drawing are looked through again for each example.
NAMES = st.lists(st.sampled_from(KINDS), unique=True, min_size=1)
NAME = st.sampled_from(KINDS)
MODE = st.sampled_from(MODES)
SIZE = st.sampled_from([4, 8, 16])
STARTS = {
    size: st.sets(st.sampled_from(range(0, 48 - size + 1, 4)), max_size=4) for size in (4, 8, 16)
}
KNOWN_SIZE = {size: st.sampled_from([None, size * 1024]) for size in (4, 8, 16)}
MOST = st.sampled_from([None, 5, 3, 2, 1, 0])
MOST_PER_GUEST = st.sampled_from([None, 0, 1, 2])
PROFILE = st.sampled_from([9, 19])
MOST_PROFILE = st.sampled_from([None, 1, 2])
FUNCTIONS = st.sampled_from([0, 1, 3, 4, 5, 5])
MADE = st.sampled_from([*[None] * 9, *KINDS])
OFFERED = st.sampled_from([3, 3, 3, 1, 0])
UP_TO_TWO, UP_TO_FOUR = st.integers(0, 2), st.integers(0, 4)
PARTS = st.none() | st.lists(PROFILE, min_size=1, max_size=3).map(
    lambda profiles: tuple(GpuInstance(i, 1, profile, i) for i, profile in enumerate(profiles))
)
SPEED = st.sampled_from([None, 0, 10, 25000, 400000])
CHOSEN_MOST = st.sampled_from([None, None, 1, 2])


@st.composite
def vgpu_types(draw: st.DrawFn, *, mig: bool) -> tuple[VgpuType, ...]:
    kinds = []
    for name in draw(NAMES):
        size = draw(SIZE)
        starts = draw(STARTS[size])
        kinds.append(
            VgpuType(
                name,
                name,
                draw(KNOWN_SIZE[size]),
                draw(MOST),
                draw(MOST_PER_GUEST),
                draw(PROFILE) if mig else None,
                draw(MOST_PROFILE) if mig else None,
                () if mig else tuple(sorted(starts)),
                size,
            )
        )
    return tuple(kinds)


VGPU_TYPES = {mig: vgpu_types(mig=mig) for mig in (False, True)}


@st.composite
def gpus(draw: st.DrawFn, mode: str | None = None) -> PhysicalGpu:
    mode = mode or draw(MODE)
    mig = mode == "MIG"
    functions = draw(FUNCTIONS)
    offers = [MdevType(name, 1) for name in KINDS]
    vfs = []
    for index in range(functions):
        made = draw(MADE)
        vfs.append(
            GpuVf(
                pci_address(f"0000:84:01.{index}"),
                index,
                CellId(0),
                () if made else tuple(offers[: draw(OFFERED)]),
                (Mdev(made, None),) if made else (),
            )
        )
    whole: dict[str, Any] = {}
    if not functions:
        name = draw(NAME)
        whole = {
            "mdev_types": (MdevType(name, draw(UP_TO_FOUR)),),
            "mdevs": tuple(Mdev(name, f"u{i}") for i in range(draw(UP_TO_TWO))),
        }
    parts = draw(PARTS)
    return PhysicalGpu(
        ADDRESS,
        "10de",
        "2235",
        CellId(0),
        vfs=tuple(vfs),
        vgpu_types=draw(VGPU_TYPES[mig]),
        vgpu_sizes_mixed={"mixed sizes": True, "one size": False}.get(mode),
        gpu_instances=parts if mig else None,
        mig_enabled=mig,
        **whole,
    )


@st.composite
def types(draw: st.DrawFn, gpu: PhysicalGpu) -> tuple[MdevTypeOptions, ...]:
    """Each function for one type, each type a class of its own."""
    addresses = [vf.address for vf in gpu.vfs] or [gpu.address]
    owner = {address: draw(NAME) for address in addresses}
    return tuple(
        MdevTypeOptions(
            name,
            tuple(a for a in addresses if owner[a] == name),
            f"CUSTOM_{name[-1]}",
            draw(CHOSEN_MOST),
        )
        for name in KINDS
        if name in owner.values()
    )


def laid_out(gpu: PhysicalGpu, chosen: tuple[MdevTypeOptions, ...], **options: Any) -> HostLayout:
    facts = replace(fake_topology("host1", NOTHING), gpus=(gpu,))
    return lay_out("host1", facts, LayoutOptions(gpu=GpuOptions(mdev_types=chosen, **options)))


def totals(layout: HostLayout) -> Counter[str]:
    """How many of each type all providers count."""
    counts: Counter[str] = Counter()
    for provider in layout.children:
        for rc, record in provider.inventory.items():
            counts[f"nvidia-{rc[-1]}"] += record.total
    return counts


def existing(gpu: PhysicalGpu) -> Counter[str]:
    makers = [gpu.mdevs, *(vf.mdevs for vf in gpu.vfs)]
    return Counter(mdev.type_id for mdevs in makers for mdev in mdevs)


def can_be_placed(sizes: list[tuple[int, tuple[int, ...]]], taken: frozenset[int]) -> bool:
    """Whether each (size, starts) has a place, by trying all."""
    if not sizes:
        return True
    (size, starts), *others = sizes
    return any(
        can_be_placed(others, taken | place)
        for start in starts
        if not (place := frozenset(range(start, start + size))) & taken
    )


def bears(gpu: PhysicalGpu, wanted: Counter[str]) -> bool:
    """Whether the GPU has room for all of these at once, by what NVML reports of it."""
    kinds = {kind.id: kind for kind in gpu.vgpu_types}
    known = {kinds[name]: amount for name, amount in wanted.items() if name in kinds and amount}
    if any(k.max_instances is not None and n > k.max_instances for k, n in known.items()):
        return False
    if gpu.gpu_instances is not None:
        for profile in (9, 19):
            parts = sum(part.profile_id == profile for part in gpu.gpu_instances)
            mine = [(k, n) for k, n in known.items() if k.gpu_instance_profile == profile]
            if parts < sum(-(-n // (k.max_instances_per_gpu_instance or 1)) for k, n in mine):
                return False
        return True
    if gpu.vgpu_sizes_mixed and known and all(kind.placements for kind in known):
        each = [(k.placement_size, k.placements) for k, n in known.items() for _ in range(n)]
        return can_be_placed(each, frozenset())
    if len(known) < 2:
        return True
    if gpu.vgpu_sizes_mixed is False and len({k.framebuffer_mib or k.id for k in known}) > 1:
        return False
    return sum(Fraction(n, k.max_instances) for k, n in known.items() if k.max_instances) <= 1


@pytest.mark.parametrize("mode", MODES)
@given(st.data())
def test_no_more_vgpus_are_counted_than_the_gpu_bears_and_no_fewer_than_exist(
    mode: str, data: st.DataObject
) -> None:
    gpu = data.draw(gpus(mode))
    chosen = data.draw(types(gpu))
    counts = totals(laid_out(gpu, chosen, vf_providers="per_pf"))
    there = existing(gpu)
    limits = {kind.type_id: kind.max_instances for kind in chosen}
    makers = [(gpu.address, gpu.mdevs), *((vf.address, vf.mdevs) for vf in gpu.vfs)]
    for kind in chosen:
        # one that was made on a function that is for another type is not of this class
        own = sum(
            mdev.type_id == kind.type_id
            for address, mdevs in makers
            if address in kind.device_addresses
            for mdev in mdevs
        )
        limit = limits[kind.type_id]
        assert counts[kind.type_id] >= (own if limit is None else min(own, limit))
        assert limit is None or counts[kind.type_id] <= limit
    others = Counter({name: n - counts[name] for name, n in there.items() if n > counts[name]})
    if bears(gpu, there):
        assert bears(gpu, counts + others)


@given(st.data())
def test_of_one_type_alone_as_many_are_counted_as_fit(data: st.DataObject) -> None:
    gpu = data.draw(gpus())
    name = data.draw(NAME)
    assume(not gpu.vgpu_sizes_mixed)
    assume(gpu.gpu_instances is None)
    assume(set(existing(gpu)) <= {name})
    counts = totals(laid_out(gpu, (MdevTypeOptions(name, (), f"CUSTOM_{name[-1]}"),)))
    there = existing(gpu)[name]
    free = [gpu.mdev_types, *(vf.mdev_types for vf in gpu.vfs)]
    offered = there + sum(
        kind.available_instances for kinds in free for kind in kinds if kind.id == name
    )
    most = next((kind.max_instances for kind in gpu.vgpu_types if kind.id == name), None)
    assert counts[name] == (offered if most is None else min(offered, max(most, there)))


@given(st.data())
def test_functions_counted_together_or_one_by_one_are_as_many(data: st.DataObject) -> None:
    gpu = data.draw(gpus())
    chosen = tuple(replace(kind, max_instances=None) for kind in data.draw(types(gpu)))
    together = laid_out(gpu, chosen, vf_providers="per_pf")
    apart = laid_out(gpu, chosen, vf_providers="per_vf")
    assert +totals(together) == +totals(apart)


@given(st.data(), st.sampled_from([None, 1, 3]), st.sampled_from(["per_pf", "per_vf"]))
def test_each_record_has_places_and_a_most_per_guest(
    data: st.DataObject, by_option: int | None, vf_providers: str
) -> None:
    gpu = data.draw(gpus())
    chosen = data.draw(types(gpu))
    layout = laid_out(gpu, chosen, vf_providers=vf_providers, max_vgpus_per_guest=by_option)
    for provider in layout.children:
        for rc, record in provider.inventory.items():
            assert 1 <= (record.max_unit or 0) <= min(record.total, by_option or record.total)
            units = provider.units[rc]
            assert len(units) == len(set(units)) >= record.total
            if not gpu.vfs or vf_providers == "per_vf":
                assert len(units) == record.total
            for kind in gpu.vgpu_types:
                if kind.id == f"nvidia-{rc[-1]}" and kind.max_instances_per_guest:
                    assert (record.max_unit or 0) <= kind.max_instances_per_guest


@given(st.lists(st.sampled_from(["1g.10gb", "1g.10gb+me", "3g.40gb"]), max_size=7))
def test_slices_are_as_many_as_their_units_and_no_other(profiles: list[str]) -> None:
    devices = tuple(
        MigDevice(f"MIG-{i}", profile, i, 0, start=len(profiles) - i, size=1)
        for i, profile in enumerate(profiles)
    )
    gpu = PhysicalGpu(
        ADDRESS,
        "10de",
        "20b5",
        CellId(0),
        mig_enabled=True,
        mig_devices=devices,
        mig_remaining=(("1g.10gb", 5), ("7g.80gb", 1)),
    )
    layout = laid_out(gpu, (), mig_classes=True)
    named = {name for p in layout.children for units in p.units.values() for name in units}
    assert named == {device.uuid for device in devices}
    for provider in layout.children:
        assert {rc: len(units) for rc, units in provider.units.items()} == {
            rc: record.total for rc, record in provider.inventory.items()
        }


@st.composite
def ports(draw: st.DrawFn) -> HostTopology:
    size = replace(NOTHING, nics=draw(UP_TO_TWO), pfs_per_nic=2, vfs_per_pf=draw(UP_TO_FOUR))
    facts = fake_topology("host1", size)
    nics = tuple(
        replace(
            port,
            speed_mbps=draw(SPEED),
            vfs=tuple(replace(vf, in_use_by_host=draw(st.booleans())) for vf in port.vfs),
        )
        for port in facts.nics
    )
    return replace(facts, nics=nics)


@given(ports(), st.floats(0, 1))
def test_functions_and_bandwidth_are_what_the_ports_have(facts: HostTopology, share: float) -> None:
    nic = NicOptions(report_bandwidth=True, bandwidth_share=share)
    layout = lay_out("host1", facts, LayoutOptions(is_nested=True, nic=nic))
    for port in facts.nics:
        provider = layout.provider(port.address)
        record = provider.inventory.get("SRIOV_NET_VF")
        total, reserved = (record.total, record.reserved) if record else (0, 0)
        units = provider.units.get("SRIOV_NET_VF", ())
        assert total == len(port.vfs)
        assert len(units) == total - reserved
        assert set(units) == {vf.address for vf in port.vfs if not vf.in_use_by_host}
        for way in ("EGR", "IGR"):
            bandwidth = provider.inventory.get(f"NET_BW_{way}_KILOBIT_PER_SEC")
            amount = bandwidth.total if bandwidth else 0
            assert amount == int((port.speed_mbps or 0) * 1000 * share)
