"""Mediated devices that guests hold, and what is done for them at a start."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from compute_agent.discovery.facts import MdevType, PciAddress, PhysicalGpu
from compute_agent.discovery.libvirt.facts import Guest, GuestMdev, MdevNodeDevice
from compute_agent.discovery.libvirt.join import join
from compute_agent.discovery.pci_address import pci_address
from compute_agent.virt.layout.options import MdevTypeOptions
from compute_agent.virt.libvirt.mdevs import (
    LostDevice,
    MdevAction,
    Place,
    RestoredMdev,
    places_of,
    steps,
)
from tests.unit.discovery.libvirt.readings import cell, reading

A, B, C = (f"00000000-0000-0000-0000-00000000000{letter}" for letter in "abc")
GPU_0, GPU_1 = pci_address("0000:17:00.0"), pci_address("0000:84:00.0")


def guest(number: int, *mdevs: str, running: bool = False) -> Guest:
    return Guest(
        uuid=f"10000000-0000-0000-0000-{number:012}",
        name=f"instance-{number}",
        is_running=running,
        vcpus=1,
        memory_kib=1024,
        mdevs=tuple(map(GuestMdev, mdevs)),
    )


def device(
    uuid: str, parent: PciAddress = GPU_0, *, active: bool = True, persistent: bool = False
) -> MdevNodeDevice:
    name = "pci_" + parent.replace(":", "_").replace(".", "_")
    return MdevNodeDevice(f"mdev_{uuid}", uuid, "nvidia-35", name, parent, active, persistent)


def places(*parents: PciAddress, available: int = 4) -> tuple[Place, ...]:
    return tuple(Place(parent, "nvidia-35", available) for parent in parents)


def done(
    guests: list[Guest],
    *devices: MdevNodeDevice,
    at: tuple[Place, ...] = (),
    units: Mapping[str, list[str]] | None = None,
) -> list[tuple[MdevAction | None, str, str | None]]:
    """What is done for which device, and on which parent; (None, uuid, None) for one that is lost.

    :param units: of each guest.
    """
    claimed = units or {}
    return [
        (step.action, step.uuid, step.parent)
        if isinstance(step, RestoredMdev)
        else (None, step.uuid, None)
        for step in steps(guests, devices, at, lambda uuid: claimed.get(uuid, []))
    ]


def test_a_device_of_a_guest_that_is_active_only_is_defined_and_one_of_nobody_is_not() -> None:
    assert done([guest(1, A, running=True)], device(A), device(B)) == [
        (MdevAction.DEFINE, A, "pci_0000_17_00_0")
    ]


def test_a_device_that_is_defined_and_did_not_come_back_is_started() -> None:
    defined = device(A, active=False, persistent=True)
    assert done([guest(1, A)], defined) == [(MdevAction.START, A, "pci_0000_17_00_0")]


def test_a_device_that_was_never_defined_is_made_where_its_guest_was_claimed() -> None:
    first, second = guest(1, A), guest(2, B)
    units = {
        first.uuid: ["3", "0000:18:00.1", "0000:84:00.0/0"],
        second.uuid: ["0000:17:00.0/2"],
    }
    assert done([second, first], at=places(GPU_0, GPU_1), units=units) == [
        (MdevAction.MAKE, A, "pci_0000_84_00_0"),
        (MdevAction.MAKE, B, "pci_0000_17_00_0"),
    ]


def test_devices_of_two_gpus_go_where_the_guest_has_none_yet() -> None:
    holder = guest(1, A, B)
    units = {holder.uuid: ["0000:17:00.0/0", "0000:84:00.0/0"]}
    kept = device(A, GPU_0, persistent=True)
    again = (MdevAction.MAKE, B, "pci_0000_84_00_0")
    assert done([holder], kept, at=places(GPU_0, GPU_1), units=units) == [again]
    both = [(MdevAction.MAKE, A, "pci_0000_17_00_0"), again]
    assert done([holder], at=places(GPU_0, GPU_1), units=units) == both


def test_without_a_claim_the_only_place_there_is_serves_and_of_two_neither() -> None:
    assert done([guest(1, A)], at=places(GPU_0)) == [(MdevAction.MAKE, A, "pci_0000_17_00_0")]
    assert done([guest(1, A)], at=places(GPU_0, GPU_1)) == [(None, A, None)]


def test_nothing_is_made_where_the_guest_was_not_claimed() -> None:
    units = {guest(1).uuid: ["0000:84:00.0/0"]}
    assert done([guest(1, A)], at=places(GPU_0), units=units) == [(None, A, None)]


def test_no_more_is_made_than_a_device_can_and_nothing_for_a_guest_that_runs() -> None:
    guests = [guest(0, C, running=True), guest(1, A, B), guest(2, C)]
    assert done(guests, at=places(GPU_0, available=2)) == [
        (MdevAction.MAKE, A, "pci_0000_17_00_0"),
        (MdevAction.MAKE, B, "pci_0000_17_00_0"),
        (None, C, None),
    ]


def test_what_is_lost_is_told_with_guest_device_places_and_commands() -> None:
    (lost,) = steps([guest(1, A)], [], places(GPU_0, GPU_1), lambda _: [])
    assert isinstance(lost, LostDevice)
    assert str(lost) == (
        "Guest instance-1 (10000000-0000-0000-0000-000000000001) does not start: its mediated "
        f"device {A} is gone and was never defined, and there is no record of where it was. What "
        "can be made now: nvidia-35 of 0000:17:00.0, nvidia-35 of 0000:84:00.0. Make it where the "
        f"allocations of the guest are, with: mdevctl define --auto --uuid {A} --parent ADDRESS "
        f"--type TYPE; mdevctl start --uuid {A}."
    )


def test_places_are_those_of_the_type_that_is_enabled_for_each_gpu() -> None:
    types = (MdevType("nvidia-35", 3), MdevType("nvidia-36", 1))
    gpus = tuple(
        PhysicalGpu(address, "10de", "1eb8", None, mdev_types=offered)
        for address, offered in ((GPU_0, types), (GPU_1, types), (pci_address("0000:85:00.0"), ()))
    )
    topology = replace(join(reading(cell(0, 0)), None), gpus=gpus)
    enabled = (MdevTypeOptions("nvidia-35"), MdevTypeOptions("nvidia-36", (GPU_1,)))
    assert places_of(topology, enabled) == (
        Place(GPU_0, "nvidia-35", 3),
        Place(GPU_1, "nvidia-36", 1),
    )
