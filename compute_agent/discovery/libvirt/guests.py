"""The guests of a hypervisor, with all of the host that each of them holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from compute_agent.discovery.errors import CallFailed, FactMalformed
from compute_agent.discovery.facts import CpuId
from compute_agent.discovery.libvirt import domain, node_devices
from compute_agent.discovery.libvirt.connection import LibvirtConnection
from compute_agent.discovery.libvirt.facts import Guest, GuestMdev, NodeDevices

if TYPE_CHECKING:
    import libvirt


class GuestReading(Struct, frozen=True):
    """One look at all guests.

    :ivar guests: by uuid.
    :ivar unread_guests: by uuid, why the description of a guest that is here cannot be had or
        understood: it may hold anything.
    """

    guests: Mapping[str, Guest] = {}
    unread_guests: Mapping[str, str] = {}


def uuids(connection: LibvirtConnection) -> list[str]:
    """Return the uuids of all domains, running or not.

    :raises DiscoveryError: libvirt does not list them now.
    """
    return sorted(handle.UUIDString() for handle in _handles(connection))


def read(
    connection: LibvirtConnection, default_huge_page_kib: int = domain.DEFAULT_HUGE_PAGE_KIB
) -> GuestReading:
    """Describe every domain, running or not. One that ends meanwhile is left out.

    :param default_huge_page_kib: of guests that ask for huge pages without a size.
    :raises DiscoveryError: libvirt does not list them now, or the connection is lost.
    """
    guests: dict[str, Guest] = {}
    unread: dict[str, str] = {}
    for handle in _handles(connection):
        uuid = str(handle.UUIDString())
        try:
            guest = _describe(connection, uuid, handle, default_huge_page_kib)
        except (CallFailed, FactMalformed) as error:
            unread[uuid] = str(error)
            continue
        if guest is not None:
            guests[uuid] = guest
    devices = _devices_behind(connection, guests.values())
    return GuestReading(
        {uuid: with_functions(guest, devices) for uuid, guest in guests.items()}, unread
    )


def read_one(
    connection: LibvirtConnection,
    uuid: str,
    default_huge_page_kib: int = domain.DEFAULT_HUGE_PAGE_KIB,
) -> Guest | None:
    """Describe a domain; None: there is none with that uuid.

    :param default_huge_page_kib: as that of `read`.
    :raises FactMalformed: its description cannot be understood.
    :raises DiscoveryError: it cannot be had.
    """
    try:
        handle = connection.call(f"lookup of guest {uuid}", lambda c: c.lookupByUUIDString(uuid))
    except CallFailed as error:
        if not _is_gone(error):
            raise
        return None
    guest = _describe(connection, uuid, handle, default_huge_page_kib)
    return None if guest is None else with_functions(guest, _devices_behind(connection, [guest]))


def with_functions(guest: Guest, devices: NodeDevices) -> Guest:
    """Return the guest with the PCI functions behind its mediated devices and its interfaces.

    A device that does not exist now, as a mediated device after the host was started again, has
    none.
    """
    mdevs = {mdev.uuid: mdev for mdev in devices.mdevs}
    parents = {net.interface: net.parent for net in devices.net}
    parents |= {vdpa.path: vdpa.parent for vdpa in devices.vdpa if vdpa.path}
    behind = {
        address
        for name in (*guest.host_interfaces, *guest.vdpa_devices)
        if (address := node_devices.address_of(parents.get(name, ""))) is not None
    }
    return replace(
        guest,
        pci_addresses=tuple(sorted({*guest.pci_addresses, *behind})),
        mdevs=tuple(
            GuestMdev(mdev.uuid, known_mdev.type_id, known_mdev.parent_address)
            if (known_mdev := mdevs.get(mdev.uuid)) is not None
            else mdev
            for mdev in guest.mdevs
        ),
    )


def _devices_behind(connection: LibvirtConnection, guests: Iterable[Guest]) -> NodeDevices:
    """List the devices of the kinds that the guests name otherwise than by an address."""
    kinds = set()
    for guest in guests:
        kinds |= {"MDEV"} if guest.mdevs else set()
        kinds |= {"NET"} if guest.host_interfaces else set()
        kinds |= {"VDPA"} if guest.vdpa_devices else set()
    return node_devices.read(connection, sorted(kinds))[0] if kinds else NodeDevices()


def online_cpus(connection: LibvirtConnection) -> tuple[CpuId, ...]:
    """Return the CPUs that a guest without a CPU set may run on; empty = unknown.

    :raises DiscoveryError: the connection is lost.
    """
    try:
        _count, is_online, _online = connection.call("getCPUMap", lambda c: c.getCPUMap())
    except CallFailed:
        return ()
    return tuple(CpuId(cpu) for cpu, online in enumerate(is_online) if online)


def _handles(connection: LibvirtConnection) -> list[libvirt.virDomain]:
    handles = connection.call("listAllDomains", lambda c: list(c.listAllDomains()))
    return sorted(handles, key=lambda handle: str(handle.UUIDString()))


def _describe(
    connection: LibvirtConnection, uuid: str, handle: libvirt.virDomain, default_huge_page_kib: int
) -> Guest | None:
    try:
        xml = connection.call(f"XMLDesc of guest {uuid}", lambda _: str(handle.XMLDesc()))
    except CallFailed as error:
        if not _is_gone(error):
            raise
        return None
    return domain.parse(xml, default_huge_page_kib)


def _is_gone(error: CallFailed) -> bool:
    import libvirt

    return error.code == int(libvirt.VIR_ERR_NO_DOMAIN)
