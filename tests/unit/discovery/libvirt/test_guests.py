"""Guests name some of their devices otherwise than by an address, which node devices tell."""

from __future__ import annotations

from compute_agent.discovery.libvirt.facts import (
    Guest,
    GuestMdev,
    MdevNodeDevice,
    NetNodeDevice,
    NodeDevices,
    VdpaNodeDevice,
)
from compute_agent.discovery.libvirt.guests import with_functions
from compute_agent.discovery.pci_address import pci_address

GPU = pci_address("0000:84:00.0")
DEVICES = NodeDevices(
    net=(
        NetNodeDevice("ens1f0v2", "pci_0000_18_01_2"),
        NetNodeDevice("lo", "computer"),
    ),
    mdevs=(MdevNodeDevice("mdev_1", "an-mdev", "nvidia-35", "pci_0000_84_00_0", GPU),),
    vdpa=(VdpaNodeDevice("vdpa0", "pci_0000_18_01_5", "/dev/vhost-vdpa-0"),),
)


def guest(**facts: object) -> Guest:
    return Guest("a-uuid", "a-guest", True, vcpus=1, memory_kib=1024, **facts)  # type: ignore[arg-type]


def test_interfaces_of_the_host_and_vdpa_devices_hold_the_function_behind_them() -> None:
    own = pci_address("0000:19:00.0")
    seen = with_functions(
        guest(
            pci_addresses=(own,),
            host_interfaces=("ens1f0v2", "lo", "gone"),
            vdpa_devices=("/dev/vhost-vdpa-0", "/dev/vhost-vdpa-9"),
        ),
        DEVICES,
    )
    assert seen.pci_addresses == ("0000:18:01.2", "0000:18:01.5", own)


def test_a_mediated_device_that_exists_has_a_type_and_a_parent() -> None:
    seen = with_functions(guest(mdevs=(GuestMdev("an-mdev"), GuestMdev("gone"))), DEVICES)
    assert seen.mdevs == (GuestMdev("an-mdev", "nvidia-35", GPU), GuestMdev("gone"))
