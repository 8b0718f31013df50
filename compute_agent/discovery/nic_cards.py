"""Cards of network ports: the ports that one adapter has."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from compute_agent.discovery.facts import NicCard, NicPort, PciDevice
from compute_agent.discovery.pci_address import order, pci_address


def cards(ports: Iterable[NicPort], devices: Iterable[PciDevice]) -> tuple[NicCard, ...]:
    """Join the ports that can make VFs into cards.

    One card is what shares domain:bus:device, or vendor, serial number and the root port, which is
    the slot: some makers give all boards one number. Halves of a card on two cells (one adapter
    plugged into two sockets) stay two cards: each has a cell of its own.
    """
    root_ports = {device.address: device.bridges[0] for device in devices if device.bridges}
    members: dict[str, list[NicPort]] = defaultdict(list)
    slot_of_serial: dict[tuple[object, ...], str] = {}
    for port in sorted(ports, key=lambda port: order(port.address)):
        if not port.is_pf:
            continue
        slot = port.address.rpartition(".")[0]
        if port.serial is not None and slot not in members:
            root_port = root_ports.get(port.address) or slot.rpartition(":")[0]
            identity = (port.vendor_id, port.serial, port.numa_node, root_port)
            slot = slot_of_serial.setdefault(identity, slot)
        members[slot].append(port)
    return tuple(
        NicCard(
            address=pci_address(f"{slot}.0"),
            ports=tuple(port.address for port in group),
            numa_node=group[0].numa_node,
            serial=group[0].serial,
            mac=group[0].mac if group[0].mac_permanent else None,
        )
        for slot, group in members.items()
    )
