"""Topologies joined of any two descriptions of a host."""

from __future__ import annotations

import random

import hypothesis.strategies as st
from hypothesis import given
from msgspec.structs import replace

from compute_agent.discovery.facts import HostTopology, PciAddress
from compute_agent.discovery.libvirt.facts import HypervisorReading, NodeDevices, PciNodeDevice
from compute_agent.discovery.libvirt.join import join
from tests.unit.discovery.libvirt.readings import cell, gpu, interface, mdev, pf, reading

BUSES = range(3)
VFS = range(1, 4)
NODE = st.sampled_from([None, 0, 1])
CLASS_CODE = st.sampled_from(["020000", "030200", "010802"])
NUMBERS = st.sets(st.sampled_from(VFS))
CELLS = st.sampled_from([(), (0,), (0, 1)])


@st.composite
def families(draw: st.DrawFn, bus: int) -> list[PciNodeDevice]:
    """Draw the functions of a bus: a card, its VFs, some of them missing; or nothing."""
    address = f"0000:{bus:02x}:00.0"
    if draw(st.booleans()):
        return []
    if draw(st.booleans()):
        return [gpu(address, draw(st.integers(0, 2)), node=draw(NODE))]
    class_code = draw(CLASS_CODE)
    numbers = draw(NUMBERS)
    whole, *vfs = pf(address, *(f"0000:{bus:02x}:00.{n}" for n in numbers), class_code=class_code)
    kept = [vf for vf in vfs if draw(st.integers(0, 3))]
    return kept if not draw(st.integers(0, 5)) else [whole, *kept]


FAMILIES = [families(bus) for bus in BUSES]


@st.composite
def readings(draw: st.DrawFn) -> HypervisorReading:
    """Draw a look at a host of up to two cells, three cards and their interfaces and vGPUs."""
    functions = [device for bus in BUSES for device in draw(FAMILIES[bus])]
    numbers = draw(CELLS)
    cells = [cell(n, 2 * n, 2 * n + 1, memory_kib=draw(st.integers(0, 9))) for n in numbers]
    addresses = [device.function.address for device in functions]
    some = st.sets(st.sampled_from(addresses)) if addresses else st.just(set())
    devices = NodeDevices(
        pci=tuple(functions),
        net=tuple(interface(f"if{n}", address) for n, address in enumerate(sorted(draw(some)))),
        mdevs=tuple(
            mdev(f"00000000-0000-0000-0000-{int(a[5:7], 16):06x}00000{a[-1]}", a)
            for a in sorted(draw(some))
        ),
    )
    return reading(*cells, devices=devices)


def members(host: HostTopology) -> list[PciAddress]:
    """Return every function that is a GPU or belongs to one."""
    return [
        address for gpu in host.gpus for address in (gpu.address, *(v.address for v in gpu.vfs))
    ]


def vgpus(host: HostTopology) -> set[str | None]:
    return {mdev.uuid for gpu in host.gpus for maker in (gpu, *gpu.vfs) for mdev in maker.mdevs}


@given(readings(), readings())
def test_no_device_is_lost_and_none_is_there_twice(
    look: HypervisorReading, other: HypervisorReading
) -> None:
    libvirt, sysfs = join(look, None), join(other, None)
    host = join(look, sysfs)
    shown = {device.address for device in sysfs.pci_devices}
    addresses = [device.address for device in host.pci_devices]
    assert addresses == sorted(shown | {device.address for device in libvirt.pci_devices})
    assert len(members(host)) == len(set(members(host)))
    assert set(members(sysfs)) <= set(members(host))
    assert {gpu.address for gpu in libvirt.gpus} - shown <= set(members(host))
    assert vgpus(sysfs) <= vgpus(host)
    assert {port.address for port in sysfs.nics} <= {port.address for port in host.nics}


@given(readings(), readings())
def test_what_refers_to_a_cell_or_a_function_finds_it(
    look: HypervisorReading, other: HypervisorReading
) -> None:
    host = join(look, join(other, None))
    cells = {cell.id for cell in host.cells}
    functions = {device.address for device in host.pci_devices}
    assert cells
    for device in (*host.pci_devices, *host.nics, *host.gpus):
        assert device.numa_node is None or device.numa_node in cells
    for device in host.pci_devices:
        assert set(device.vfs) <= functions
    for port in host.nics:
        assert len({vf.index for vf in port.vfs}) == len(port.vfs)


@given(readings(), readings())
def test_joining_twice_is_joining_once(look: HypervisorReading, other: HypervisorReading) -> None:
    host = join(look, join(other, None))
    assert join(look, host) == host
    assert len(set(host.warnings)) == len(host.warnings)


@given(readings(), readings(), st.randoms())
def test_the_order_in_which_libvirt_lists_devices_does_not_matter(
    look: HypervisorReading, other: HypervisorReading, chance: random.Random
) -> None:
    def shuffled(devices: tuple[PciNodeDevice, ...]) -> tuple[PciNodeDevice, ...]:
        return tuple(chance.sample(devices, len(devices)))

    mixed = replace(look, devices=replace(look.devices, pci=shuffled(look.devices.pci)))
    topology = join(other, None)
    assert join(mixed, topology) == join(look, topology)
