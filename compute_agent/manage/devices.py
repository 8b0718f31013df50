"""Checks of devices: whether their place is known, and whether they can be given to guests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from compute_agent.conf.devices import override_text
from compute_agent.discovery.sysfs import pci
from compute_agent.manage.diagnosis import Diagnosis, Level, Setting
from compute_agent.programs.printable import first_of
from compute_agent.virt.layout.devices.pci import matches

if TYPE_CHECKING:
    from compute_agent.discovery.facts import HostTopology, PciAddress
    from compute_agent.discovery.sysfs.reader import Machine
    from compute_agent.virt.layout import HostLayout, LayoutOptions
    from compute_agent.virt.layout.device_spec import DeviceSpec

NODE: Final = "NODE"
"""Placeholder for a number that the operator has to fill in."""

BRIDGE: Final = "06"
"""First digits of the class code of bridges."""

STUB: Final = "pci-stub"
"""The driver that keeps a function from other drivers, and leaves its group to a guest."""

SHOWN: Final = 8
"""So many addresses are in one sentence."""


def examine_devices(
    topology: HostTopology, options: LayoutOptions, layout: HostLayout, machine: Machine | None
) -> Iterator[Diagnosis]:
    """Check the devices of a machine.

    :param machine: its files; None where they are on another one.
    """
    yield from _cells(topology, options)
    if machine is not None:
        yield from _unmanaged_devices(machine, layout)
        yield from _iommu_groups(machine, topology, matches(topology, options.pci))


def _cells(topology: HostTopology, options: LayoutOptions) -> Iterator[Diagnosis]:
    """Check for devices of unknown affinity, which end up under the root."""
    if len(topology.cells) < 2:
        return
    for kind, devices, override in (
        ("gpu", topology.gpus, options.gpu.numa_node_override),
        ("nic", topology.nics, options.nic.numa_node_override),
    ):
        silent = [
            device.address
            for device in devices
            if device.numa_node is None and device.address not in override
        ]
        if silent:
            text = f"the NUMA node of {kind} {', '.join(silent)} is not known"
            cells: dict[str, int | str] = dict(override.items())
            cells.update(dict.fromkeys(silent, NODE))
            setting = Setting(kind, "numa_node_override", override_text(cells))
            yield Diagnosis(Level.WARNING, "NUMA", text, setting)


def _unmanaged_devices(machine: Machine, layout: HostLayout) -> Iterator[Diagnosis]:
    """Check that devices which nobody binds for a guest are bound to a driver that passes them."""
    for provider in layout.providers:
        for address in sorted(provider.unmanaged_units):
            names = machine.sys.names(f"{pci.DEVICES}/{address}")
            if not names or pci.can_be_passed(machine, address):
                continue
            driver = pci.driver_of(machine, address)
            binding = f"is bound to {driver}" if driver else "is unbound"
            text = (
                f"{address} has managed: no in [pci]device_spec, so it is not bound to vfio-pci "
                f"when a guest gets it, and it {binding}: such a guest does not start. Bind it at "
                "the start of the machine "
                f"(`driverctl set-override {address} vfio-pci`), or remove managed: no"
            )
            yield Diagnosis(Level.WARNING, "devices", text)


def _iommu_groups(
    machine: Machine, topology: HostTopology, specs: Mapping[PciAddress, DeviceSpec]
) -> Iterator[Diagnosis]:
    """Check that the kernel can give the devices to guests, each to another one.

    A group goes to one guest, and only while no driver of the host has a part of it; bridges do not
    count (Documentation/driver-api/vfio.rst of the kernel).
    """
    bridges = {
        device.address for device in topology.pci_devices if device.class_code.startswith(BRIDGE)
    }
    ungrouped: list[str] = []
    groups: dict[str, set[str]] = {}
    for address in sorted(specs):
        here = f"{pci.DEVICES}/{address}"
        if group := machine.sys.link_name(f"{here}/{pci.IOMMU_GROUP}"):
            groups[group] = set(machine.sys.names(f"{here}/{pci.IOMMU_GROUP}/devices")) - bridges
        elif machine.sys.names(here):
            ungrouped.append(address)
    if ungrouped:
        text = (
            f"[pci]device_spec gives guests {first_of(ungrouped, SHOWN)}, and the kernel has no "
            "IOMMU group for it, without which no guest gets a device: switch the IOMMU on in the "
            "firmware and, for Intel, with intel_iommu=on on the kernel's command line"
        )
        yield Diagnosis(Level.WARNING, "IOMMU", text)
    for group, members in sorted(groups.items()):
        offered = sorted(members.intersection(specs))
        kept = [
            f"{address} ({driver})"
            for address in sorted(members.difference(specs))
            if (driver := pci.driver_of(machine, address)) not in (None, STUB)
            and not pci.can_be_passed(machine, address)
        ]
        text = f"{first_of(offered, SHOWN)} of [pci]device_spec"
        if kept:
            yield Diagnosis(
                Level.WARNING,
                "IOMMU",
                f"{text}: no guest that gets it starts, as drivers of this host have other "
                f"functions of its IOMMU group {group}: {first_of(kept, SHOWN)}. Bind these to "
                "vfio-pci too (`driverctl set-override ADDRESS vfio-pci`), or move the card to a "
                "slot with a group of its own",
            )
        elif len(offered) > 1:
            yield Diagnosis(
                Level.WARNING,
                "IOMMU",
                f"{text} are counted as {len(offered)} devices, and share IOMMU group {group}: "
                "only one guest at a time can have any of them. Leave out all but one of them, "
                "or move the card to a slot whose functions have groups of their own",
            )
