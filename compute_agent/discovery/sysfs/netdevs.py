"""Network interfaces of a PCI function: which are uplinks, and which the host itself uses.

Source: Documentation/ABI/testing/sysfs-class-net, Documentation/networking/representors.rst.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from compute_agent.discovery.sysfs import pci
from compute_agent.discovery.sysfs.reader import Machine

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


@dataclass(frozen=True, slots=True)
class Uplink:
    """An interface that is a port to the outside (not the representor of a VF)."""

    name: str
    directory: str
    dev_port: int


@dataclass(frozen=True, slots=True)
class Ports:
    """The interfaces of one function, sorted into uplinks and others."""

    uplinks: tuple[Uplink, ...]
    representors: tuple[str, ...]


def directory(machine: Machine, function_directory: str, entries: frozenset[str]) -> str | None:
    """Where a function's interfaces are; None when it has none. A virtio card has them one down."""
    if NET in entries:
        return f"{function_directory}/{NET}"
    for name in sorted(entries):
        if _VIRTIO.fullmatch(name) and NET in machine.sys.names(f"{function_directory}/{name}"):
            return f"{function_directory}/{name}/{NET}"
    return None


def ports(machine: Machine, net: str) -> Ports:
    """Distinguish uplinks from representors: an uplink has no port name, or one such as `p0`."""
    tree = machine.sys
    uplinks, representors = [], []
    for name in tree.names(net):
        here = f"{net}/{name}"
        port = tree.optional_text(f"{here}/{PHYS_PORT_NAME}")
        if port is not None and _UPLINK.fullmatch(port) is None:
            representors.append(name)
            continue
        dev_port = tree.optional_integer(f"{here}/{DEV_PORT}") or 0
        uplinks.append(Uplink(name, here, dev_port))
    uplinks.sort(key=lambda uplink: (uplink.dev_port, uplink.name))
    return Ports(tuple(uplinks), tuple(representors))


def kind(machine: Machine, uplinks: tuple[Uplink, ...], class_code: str) -> str | None:
    """Return pci.ETHERNET, pci.INFINIBAND, or None for a function of another network.

    Cards for both have one class, so the interface decides, and the class where there is none.
    """
    here = uplinks[0].directory if uplinks else None
    number = None if here is None else machine.sys.optional_integer(f"{here}/{TYPE}")
    if here is None or number is None:
        return pci.network_kind(class_code)
    if number == INFINIBAND_TYPE:
        return pci.INFINIBAND
    may_be_wireless = not class_code.startswith(pci.ETHERNET)
    if number != ETHERNET_TYPE or (may_be_wireless and WIRELESS in machine.sys.names(here)):
        return None
    return pci.ETHERNET


def speed_mbps(machine: Machine, here: str) -> int | None:
    """Link speed; a link that is down has -1, EINVAL or nothing there, which is never an error."""
    speed = machine.sys.optional_integer(f"{here}/{SPEED}")
    return None if speed is None or speed in NO_SPEED or speed < 0 else speed


def mac(machine: Machine, here: str) -> tuple[str | None, bool]:
    """Return the MAC address, lower case, and whether it is burnt into the card.

    The longer address of an InfiniBand interface is none: it begins with the number of a queue.
    """
    address = machine.sys.optional_text(f"{here}/{ADDRESS}")
    if address is None or not address.strip("0:") or not _MAC.fullmatch(address):
        return None, False
    assignment = machine.sys.optional_integer(f"{here}/{ADDRESS_ASSIGNED}")
    return address.lower(), assignment == PERMANENT


class HostUse:
    """The interfaces that the host itself talks through.

    It talks through one that is enslaved (bond, bridge, Open vSwitch), or is up and has an IP
    address, or something with an address sits on it (a VLAN). A macvtap on it belongs to a guest.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    @cached_property
    def _names_with_address(self) -> frozenset[str]:
        return names_with_address(self._machine)

    def of(self, name: str, here: str) -> bool:
        entries = self._machine.sys.names(here)
        if MASTER in entries:
            return True
        flags = self._machine.sys.optional_integer(f"{here}/{FLAGS}") or 0
        if not flags & UP:
            return False
        return name in self._names_with_address or self._carries(entries)

    def _carries(self, entries: tuple[str, ...]) -> bool:
        for entry in entries:
            kind, _, upper = entry.partition("_")
            if kind == "upper" and self.of(upper, f"{INTERFACES}/{upper}"):
                return True
        return False


def names_with_address(machine: Machine) -> frozenset[str]:
    """Interfaces that were given an IP address (not the link-local one of IPv6)."""
    routes = machine.proc.optional_text(ROUTES, PROC_LIMIT) or ""
    names = {words[0] for words in map(str.split, routes.splitlines()[1:]) if words}
    addresses = machine.proc.optional_text(INET6, PROC_LIMIT) or ""
    for words in map(str.split, addresses.splitlines()):
        # address, index, prefix length, scope, flags, interface
        if len(words) == 6 and words[3] != LINK_LOCAL:
            names.add(words[5])
    return frozenset(names)
