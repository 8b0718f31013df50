"""Network ports with their virtual functions, and the cards that ports are joined on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from compute_agent.discovery.facts import NicCard, NicPort, NicVf, PciDevice, pci_address
from compute_agent.discovery.sysfs import netdevs, pci
from compute_agent.discovery.sysfs.pci import PciFunction, PciFunctions, order
from compute_agent.discovery.sysfs.reader import Machine
from compute_agent.discovery.sysfs.vpd import VPD, SerialNumbers

INFINIBAND = "infiniband"  # directory of a function that does RDMA, RoCE included


def discover(
    machine: Machine, functions: PciFunctions, serials: SerialNumbers
) -> tuple[NicPort, ...]:
    """Every function for Ethernet or InfiniBand that is not a VF, by address."""
    use = netdevs.HostUse(machine)
    ports = (
        _port(machine, function, functions, use, serials)
        for function in functions.values()
        if function.device.class_code.startswith(pci.NETWORK) and not function.device.is_vf
    )
    return tuple(port for port in ports if port is not None)


def _port(
    machine: Machine,
    function: PciFunction,
    functions: PciFunctions,
    use: netdevs.HostUse,
    serials: SerialNumbers,
) -> NicPort | None:
    device, here = function.device, function.directory
    net = netdevs.directory(machine, here, function.entries)
    ports = netdevs.Ports((), ()) if net is None else netdevs.ports(machine, net)
    kind = netdevs.kind(machine, ports.uplinks, device.class_code)
    if kind is None:
        return None
    uplink = ports.uplinks[0] if ports.uplinks else None
    mac, permanent = (None, False) if uplink is None else netdevs.mac(machine, uplink.directory)
    switchdev = _switch(machine, uplink) is not None  # drivers give the id in that mode only
    rdma = INFINIBAND in function.entries
    return NicPort(
        address=device.address,
        vendor_id=device.vendor_id,
        product_id=device.product_id,
        numa_node=device.numa_node,
        name=uplink.name if uplink else None,
        names=tuple(port.name for port in ports.uplinks),
        mac=mac,
        mac_permanent=permanent,
        speed_mbps=netdevs.speed_mbps(machine, uplink.directory) if uplink else None,
        switchdev=switchdev,
        rdma=rdma,
        is_pf=device.is_pf,
        vfs=_vfs(machine, function, functions, use),
        serial=serials.of(machine, device, here) if VPD in function.entries else None,
        features=tuple(name for name, there in (("rdma", rdma), ("switchdev", switchdev)) if there),
        is_infiniband=kind == pci.INFINIBAND,
        in_use_by_host=any(use.of(port.name, port.directory) for port in ports.uplinks),
    )


def _switch(machine: Machine, uplink: netdevs.Uplink | None) -> str | None:
    if uplink is None:
        return None
    return machine.sys.optional_text(f"{uplink.directory}/{netdevs.PHYS_SWITCH_ID}")


def _vfs(
    machine: Machine, function: PciFunction, functions: PciFunctions, use: netdevs.HostUse
) -> tuple[NicVf, ...]:
    result = []
    for index, address in zip(function.vf_numbers, function.device.vfs, strict=True):
        vf = functions[address]
        net = netdevs.directory(machine, vf.directory, vf.entries)
        names = () if net is None else machine.sys.names(net)
        result.append(
            NicVf(
                address=address,
                index=index,
                netdev=names[0] if names else None,
                in_use_by_host=any(use.of(name, f"{net}/{name}") for name in names),
                vdpa=vf.device.vdpa,
            )
        )
    return tuple(result)


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
    return tuple(_card(slot, group) for slot, group in members.items())


def _card(slot: str, ports: list[NicPort]) -> NicCard:
    first = ports[0]
    return NicCard(
        address=pci_address(f"{slot}.0"),
        ports=tuple(port.address for port in ports),
        numa_node=first.numa_node,
        serial=first.serial,
        mac=first.mac if first.mac_permanent else None,
    )
