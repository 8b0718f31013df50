"""Network ports with their virtual functions, and the cards that ports are joined on.

Source: Documentation/ABI/testing/sysfs-class-net, Documentation/networking/representors.rst.
"""

from __future__ import annotations

import re
from functools import cached_property

from compute_agent.discovery.facts import NicPort, NicVf
from compute_agent.discovery.sysfs import pci
from compute_agent.discovery.sysfs.pci import PciFunction, PciFunctions
from compute_agent.discovery.sysfs.reader import Machine
from compute_agent.discovery.sysfs.vpd import VPD, SerialNumbers

INFINIBAND = "infiniband"  # directory of a function that does RDMA, RoCE included
INTERFACES = "class/net"
NET = "net"  # below the function's directory, or below that of its virtio device
ADDRESS = "address"
ADDRESS_ASSIGNED = "addr_assign_type"
DEV_PORT = "dev_port"
FLAGS = "flags"
MASTER = "master"
PHYS_PORT_NAME = "phys_port_name"
PHYS_SWITCH_ID = "phys_switch_id"
SPEED = "speed"
TYPE = "type"
UPPER = "upper_"  # beginning of a link to an interface that sits on this one
WIRELESS = "phy80211"
ROUTES = "net/route"  # IPv4: an interface with an address has at least the route to its network
INET6 = "net/if_inet6"

ETHERNET_TYPE, INFINIBAND_TYPE = 1, 32  # ARPHRD_ETHER, which wireless ones have too; ARPHRD_...
PERMANENT = 0  # of addr_assign_type: NET_ADDR_PERM
UP = 0x1  # of flags: IFF_UP
LINK_LOCAL = "20"  # scope in if_inet6: every interface that is up gives itself such an address
NO_SPEED = frozenset({0, -1, 0xFFFF, 0xFFFFFFFF})  # 16 and 32 bit forms of "unknown"
PROC_LIMIT = 1 << 20

_UPLINK = re.compile(r"p\d+(s\d+)?")  # p0s1: the second part of a port that was split
_MAC = re.compile(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}")
_VIRTIO = re.compile(r"virtio\d+")


def _interface_directory(machine: Machine, function: PciFunction) -> str | None:
    """Return where a function's interfaces are; None: it has none. Those of virtio are one down."""
    here = function.directory
    if NET in function.entries:
        return f"{here}/{NET}"
    for name in sorted(function.entries):
        if _VIRTIO.fullmatch(name) and NET in machine.sys.names(f"{here}/{name}"):
            return f"{here}/{name}/{NET}"
    return None


def _uplinks(machine: Machine, function: PciFunction) -> list[str]:
    """Return the directories of the interfaces that are ports to the outside, by port and name.

    An uplink has no port name, or one such as `p0`; the representor of a VF has another.
    """
    tree, net = machine.sys, _interface_directory(machine, function)
    uplinks = []
    for name in () if net is None else tree.names(net):
        here = f"{net}/{name}"
        port = tree.optional_text(f"{here}/{PHYS_PORT_NAME}")
        if port is None or _UPLINK.fullmatch(port):
            uplinks.append((tree.optional_integer(f"{here}/{DEV_PORT}") or 0, name, here))
    return [here for _port, _name, here in sorted(uplinks)]


def _kind(machine: Machine, uplink: str | None, class_code: str) -> str | None:
    """Return pci.ETHERNET, pci.INFINIBAND, or None for a function of another network.

    Cards for both have one class, so the interface decides, and the class where there is none.
    """
    number = None if uplink is None else machine.sys.optional_integer(f"{uplink}/{TYPE}")
    if uplink is None or number is None:
        return pci.network_kind(class_code)
    if number == INFINIBAND_TYPE:
        return pci.INFINIBAND
    may_be_wireless = not class_code.startswith(pci.ETHERNET)
    if number != ETHERNET_TYPE or (may_be_wireless and WIRELESS in machine.sys.names(uplink)):
        return None
    return pci.ETHERNET


def _speed_mbps(machine: Machine, here: str) -> int | None:
    """Link speed; a link that is down has -1, EINVAL or nothing there, which is never an error."""
    speed = machine.sys.optional_integer(f"{here}/{SPEED}")
    return None if speed is None or speed in NO_SPEED or speed < 0 else speed


def _mac(machine: Machine, here: str) -> tuple[str | None, bool]:
    """Return the MAC address, lower case, and whether it is burnt into the card.

    The longer address of an InfiniBand interface is none: it begins with the number of a queue.
    """
    address = machine.sys.optional_text(f"{here}/{ADDRESS}")
    if address is None or not address.strip("0:") or not _MAC.fullmatch(address):
        return None, False
    assignment = machine.sys.optional_integer(f"{here}/{ADDRESS_ASSIGNED}")
    return address.lower(), assignment == PERMANENT


class _HostUse:
    """The interfaces that the host itself talks through.

    It talks through one that is enslaved (bond, bridge, Open vSwitch), or is up and has an IP
    address, or something with an address sits on it (a VLAN). A macvtap on it belongs to a guest.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def of(self, here: str) -> bool:
        """Whether the host talks through the interface in this directory."""
        entries = self._machine.sys.names(here)
        if MASTER in entries:
            return True
        flags = self._machine.sys.optional_integer(f"{here}/{FLAGS}") or 0
        if not flags & UP:
            return False
        return here.rpartition("/")[2] in self._names_with_address or any(
            self.of(f"{INTERFACES}/{entry.removeprefix(UPPER)}")
            for entry in entries
            if entry.startswith(UPPER)
        )

    @cached_property
    def _names_with_address(self) -> frozenset[str]:
        """Interfaces that were given an IP address (not the link-local one of IPv6)."""
        routes = self._machine.proc.optional_text(ROUTES, PROC_LIMIT) or ""
        names = {words[0] for words in map(str.split, routes.splitlines()[1:]) if words}
        addresses = self._machine.proc.optional_text(INET6, PROC_LIMIT) or ""
        for words in map(str.split, addresses.splitlines()):
            # address, index, prefix length, scope, flags, interface
            if len(words) == 6 and words[3] != LINK_LOCAL:
                names.add(words[5])
        return frozenset(names)


def discover(
    machine: Machine, functions: PciFunctions, serials: SerialNumbers
) -> tuple[NicPort, ...]:
    """Every function for Ethernet or InfiniBand that is not a VF, by address."""
    use = _HostUse(machine)
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
    use: _HostUse,
    serials: SerialNumbers,
) -> NicPort | None:
    device = function.device
    uplinks = _uplinks(machine, function)
    names = tuple(uplink.rpartition("/")[2] for uplink in uplinks)
    first = uplinks[0] if uplinks else None
    kind = _kind(machine, first, device.class_code)
    if kind is None:
        return None
    mac, permanent = (None, False) if first is None else _mac(machine, first)
    # drivers give the id in that mode only
    switchdev = first is not None and bool(machine.sys.optional_text(f"{first}/{PHYS_SWITCH_ID}"))
    rdma = INFINIBAND in function.entries
    return NicPort(
        address=device.address,
        vendor_id=device.vendor_id,
        product_id=device.product_id,
        numa_node=device.numa_node,
        names=names,
        mac=mac,
        mac_permanent=permanent,
        speed_mbps=None if first is None else _speed_mbps(machine, first),
        is_pf=device.is_pf,
        vfs=tuple(
            _vf(machine, index, functions[address], use)
            for index, address in zip(function.vf_numbers, device.vfs, strict=True)
        ),
        serial=serials.of(machine, function) if VPD in function.entries else None,
        features=tuple(name for name, there in (("rdma", rdma), ("switchdev", switchdev)) if there),
        is_infiniband=kind == pci.INFINIBAND,
        in_use_by_host=any(map(use.of, uplinks)),
    )


def _vf(machine: Machine, index: int, vf: PciFunction, use: _HostUse) -> NicVf:
    net = _interface_directory(machine, vf)
    names = () if net is None else machine.sys.names(net)
    return NicVf(
        address=vf.device.address,
        index=index,
        netdev=names[0] if names else None,
        in_use_by_host=any(use.of(f"{net}/{name}") for name in names),
        vdpa=vf.device.vdpa,
    )
