"""Node devices: PCI functions, network interfaces, mediated and vDPA devices as libvirt lists them.

    computer
    └ pci_0000_81_00_0                       a PF, with the addresses of its VFs
      ├ net_ens1f0_b4_96_91_00_00_01         its interface, with the offloads
      └ pci_0000_81_02_0                     a VF
        └ vdpa_vdpa0
    pci_0000_84_00_0                         a GPU, with its types of mediated devices
    └ mdev_3627463d_b7f0_4fea_b468_f1da537d301b_0000_84_00_0

A mediated device is named after its uuid, from libvirt 7.7 on after its uuid and its parent.

Source: https://libvirt.org/formatnode.html.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar
from xml.etree.ElementTree import Element

from msgspec.structs import replace

from compute_agent.discovery.errors import CallFailed, CallUnsupported, FactMalformed
from compute_agent.discovery.facts import CellId, MdevType, PciAddress, PciDevice
from compute_agent.discovery.libvirt import elements
from compute_agent.discovery.libvirt.connection import LibvirtConnection
from compute_agent.discovery.libvirt.facts import (
    MdevNodeDevice,
    NetNodeDevice,
    NodeDevices,
    PciNodeDevice,
    VdpaNodeDevice,
)
from compute_agent.discovery.pci_address import pci_address
from compute_agent.discovery.sysfs.nics import NO_SPEED
from compute_agent.discovery.sysfs.pci import NETWORK, bridges
from compute_agent.discovery.sysfs.vpd import identity

if TYPE_CHECKING:
    import libvirt

NodeDevice = PciNodeDevice | NetNodeDevice | MdevNodeDevice | VdpaNodeDevice

KINDS: Final = ("PCI_DEV", "NET", "MDEV", "VDPA")
"""Of VIR_CONNECT_LIST_NODE_DEVICES_CAP_."""
NO_DEVICES: Final = NodeDevices()
WIRELESS: Final = "80211"
UNCLASSIFIED: Final = "000000"
"""PCI's class of a function that names none."""

_MDEV_NAME = re.compile(
    r"mdev_([0-9a-f]{8}_[0-9a-f]{4}_[0-9a-f]{4}_[0-9a-f]{4}_[0-9a-f]{12})(?:_.*)?"
)
_PCI_NAME = re.compile(r"pci_([0-9a-f]+)_([0-9a-f]{2})_([0-9a-f]{2})_([0-7])")

_Result = TypeVar("_Result")


def read(
    connection: LibvirtConnection, kinds: Iterable[str] = KINDS, before: NodeDevices = NO_DEVICES
) -> tuple[NodeDevices, tuple[str, ...]]:
    """List the node devices, and describe each; returns them with a warning for each left out.

    A hypervisor that lists no node devices has none here. VFs of network cards, of which there are
    hundreds, and their interfaces are described again only when something of their PF changed.

    :param kinds: of `KINDS`.
    :param before: what an earlier call returned.
    :raises HypervisorUnreachable: the connection is lost.
    :raises CallFailed: the devices cannot be listed now.
    """
    try:
        handles = connection.call("listAllDevices", partial(_list, tuple(kinds)))
        handles.sort(key=_name)
    except CallUnsupported:
        return NodeDevices(), ()
    devices: dict[str, NodeDevice] = {}
    warnings = []

    def describe(handle: libvirt.virNodeDevice) -> None:
        try:
            device = _read_one(connection, handle)
        except (CallFailed, FactMalformed) as error:
            warnings.append(f"{error}; node device {_name(handle)} left out")
            return
        if device is not None:
            devices[_name(handle)] = device

    of_vfs, seen_names = _of_vfs(before), frozenset(before.pci)
    for handle in handles:
        if _name(handle) not in of_vfs:
            describe(handle)
    unchanged_addresses = {
        pf.function.address for pf in _of_kind(devices.values(), PciNodeDevice) if pf in seen_names
    }
    for handle in handles:
        name = _name(handle)
        if name in of_vfs and of_vfs[name][1] in unchanged_addresses:
            devices[name] = of_vfs[name][0]
        elif name in of_vfs:
            describe(handle)
    return of([devices[name] for name in sorted(devices)]), tuple(warnings)


def _of_vfs(before: NodeDevices) -> dict[str, tuple[NodeDevice, PciAddress]]:
    """Return the VFs of network cards and their interfaces, by name, each with its PF."""
    vfs: dict[str, tuple[NodeDevice, PciAddress]] = {
        vf.name: (vf, vf.function.physfn)
        for vf in before.pci
        if vf.function.physfn and vf.function.class_code.startswith(NETWORK) and not vf.mdev_types
    }
    return vfs | {net.name: (net, vfs[net.parent][1]) for net in before.net if net.parent in vfs}


def of(devices: list[NodeDevice]) -> NodeDevices:
    """Return the devices by kind, each kind in the order they came in."""
    return NodeDevices(
        pci=_of_kind(devices, PciNodeDevice),
        net=_of_kind(devices, NetNodeDevice),
        mdevs=_of_kind(devices, MdevNodeDevice),
        vdpa=_of_kind(devices, VdpaNodeDevice),
    )


def parse(xml: str) -> NodeDevice | None:
    """Return the device that `xml` describes; None: it is of another kind.

    :raises FactMalformed: it is not the description of a node device.
    """
    root = elements.document(xml, "a node device")
    name, capability = root.findtext("name"), root.find("capability")
    if root.tag != "device" or name is None or capability is None:
        raise FactMalformed("a node device", xml, "<device> with <name> and <capability>")
    parser = _PARSERS.get(capability.get("type", ""))
    try:
        return None if parser is None else parser(name, root, capability)
    except (ValueError, TypeError) as error:
        raise FactMalformed(name, xml, f"a whole description ({error})") from error


def address_of(name: str) -> PciAddress | None:
    """Return the address in the name of a PCI device; None: it is the name of another device."""
    match = _PCI_NAME.fullmatch(name)
    return pci_address(f"{match[1]}:{match[2]}:{match[3]}.{match[4]}") if match else None


def name_of(address: PciAddress) -> str:
    """Return libvirt's name of the PCI device at an address."""
    return "pci_" + re.sub("[:.]", "_", address)


# -- one call each ----------------------------------------------------------------------------


def _list(kinds: tuple[str, ...], connection: libvirt.virConnect) -> list[libvirt.virNodeDevice]:
    import libvirt

    flags = 0
    for kind in kinds:
        flags |= getattr(libvirt, f"VIR_CONNECT_LIST_NODE_DEVICES_CAP_{kind}", 0)
    return list(connection.listAllDevices(flags))


def _name(handle: libvirt.virNodeDevice) -> str:
    return str(handle.name())


def _read_one(connection: LibvirtConnection, handle: libvirt.virNodeDevice) -> NodeDevice | None:
    name = _name(handle)
    device = parse(connection.call(f"XMLDesc of {name}", lambda _: str(handle.XMLDesc(0))))
    if not isinstance(device, MdevNodeDevice):
        return device

    def ask(attribute: str, unknown: bool) -> bool:
        with suppress(CallUnsupported, AttributeError):
            method = getattr(handle, attribute)
            return connection.call(f"{attribute} of {name}", lambda _: bool(method()))
        return unknown

    active, persistent = ask("isActive", unknown=True), ask("isPersistent", unknown=False)
    return replace(device, active=active, persistent=persistent)


# -- one kind each ----------------------------------------------------------------------------


def _pci(name: str, root: Element, pci: Element) -> PciNodeDevice:
    numa = pci.find("numa")
    node = None if numa is None else int(numa.get("node", "-1"))
    vfs = pci.find("capability[@type='virt_functions']")
    physfn = pci.find("capability[@type='phys_function']/address")
    domain, bus, slot, number = (
        int(_required_text(pci, part)) for part in ("domain", "bus", "slot", "function")
    )
    function = PciDevice(
        address=pci_address(f"{domain:04x}:{bus:02x}:{slot:02x}.{number}"),
        vendor_id=_id(pci, "vendor"),
        product_id=_id(pci, "product"),
        class_code=f"{int(elements.text(pci, 'class') or UNCLASSIFIED, 16):06x}",
        numa_node=None if node is None or node < 0 else CellId(node),
        bridges=bridges(root.findtext("path") or "") if physfn is None else (),
        physfn=None if physfn is None else elements.address(physfn),
        total_vfs=0 if vfs is None else int(vfs.get("maxCount", "0")),
        vfs=() if vfs is None else tuple(map(elements.address, vfs.iterfind("address"))),
    )
    return PciNodeDevice(
        name=name,
        function=function,
        mdev_types=_mdev_types(pci),
        serial=identity(
            pci.findtext("capability[@type='vpd']/fields[@access='readonly']/serial_number")
        ),
    )


def _net(name: str, root: Element, net: Element) -> NetNodeDevice | None:
    if net.find(f"capability[@type='{WIRELESS}']") is not None:
        return None
    link = net.find("link")
    up = link is not None and link.get("state") == "up"
    speed = int(link.get("speed", "0")) if link is not None and up else 0
    mac = elements.text(net, "address")
    features = {feature.get("name") for feature in net.iterfind("feature")}
    return NetNodeDevice(
        interface=_required_text(net, "interface"),
        parent=_required_text(root, "parent"),
        mac=None if mac is None else mac.lower(),
        speed_mbps=None if speed in NO_SPEED or speed < 0 else speed,
        features=tuple(sorted(feature for feature in features if feature)),
        name=name,
    )


def _mdev(name: str, root: Element, mdev: Element) -> MdevNodeDevice:
    parent = _required_text(root, "parent")
    kind = mdev.find("type")
    type_id = None if kind is None else kind.get("id")
    if not type_id:
        raise ValueError("no type")
    uuid = elements.text(mdev, "uuid")
    if uuid is None:
        match = _MDEV_NAME.fullmatch(name)
        if match is None:
            raise ValueError("no uuid")
        uuid = match[1].replace("_", "-")
    address = address_of(parent)
    if address is None:
        with suppress(ValueError):  # a channel or a matrix of s390
            address = pci_address(elements.text(mdev, "parent_addr") or "")
    return MdevNodeDevice(name, uuid.lower(), type_id, parent, address)


def _vdpa(name: str, root: Element, vdpa: Element) -> VdpaNodeDevice:
    return VdpaNodeDevice(
        name.removeprefix("vdpa_"), _required_text(root, "parent"), elements.text(vdpa, "chardev")
    )


_PARSERS: Final[dict[str, Callable[[str, Element, Element], NodeDevice | None]]] = {
    "pci": _pci,
    "net": _net,
    "mdev": _mdev,
    "vdpa": _vdpa,
}


# -- elements ---------------------------------------------------------------------------------


def _required_text(element: Element, path: str) -> str:
    text = elements.text(element, path)
    if text is None:
        raise ValueError(f"no {path}")
    return text


def _id(pci: Element, path: str) -> str:
    element = pci.find(path)
    return f"{int('' if element is None else element.get('id', ''), 16):04x}"


def _mdev_types(pci: Element) -> tuple[MdevType, ...]:
    types = [
        MdevType(kind.get("id", ""), int(_required_text(kind, "availableInstances")))
        for kind in pci.iterfind("capability[@type='mdev_types']/type")
    ]
    return tuple(sorted(types, key=lambda kind: kind.id))


def _of_kind(devices: Iterable[NodeDevice], kind: type[_Result]) -> tuple[_Result, ...]:
    return tuple(device for device in devices if isinstance(device, kind))
