"""Mediated devices of guests, made to survive a reboot of the host.

The kernel forgets its mediated devices when it ends; a guest whose device is gone does not start.
What libvirt has a definition of can be started again, so each device that a guest holds gets one.

    the device is                  what is done
    active, not defined            defined under the same uuid, to be started with the host
    defined, not active            started
    neither, and its place known   defined at that place, with the type enabled there, and started
    neither                        a warning that names the guest

The place is the one that the guest was claimed, or the only one where there is no other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import Enum
from operator import methodcaller
from typing import TYPE_CHECKING, Final
from xml.sax.saxutils import quoteattr

import tenacity
from msgspec import Struct
from oslo_log import log

from compute_agent.discovery.errors import CallFailed, CallUnsupported
from compute_agent.discovery.facts import HostTopology, PciAddress
from compute_agent.discovery.libvirt.connection import LibvirtConnection
from compute_agent.discovery.libvirt.facts import Guest, MdevNodeDevice
from compute_agent.discovery.libvirt.node_devices import name_of
from compute_agent.virt.layout.devices.vgpus import makers, type_for
from compute_agent.virt.layout.options import MdevTypeOptions

if TYPE_CHECKING:
    import libvirt

LOG = log.getLogger(__name__)

_LISTED_AGAIN: Final = 5.0
"""Seconds in which libvirt has listed the defined devices again."""

Claimed = Callable[[str], Collection[str]]
"""Guest -> names of the units that it was claimed; of a vGPU 0000:84:00.0/3."""


class MdevAction(Enum):
    """What is done for a device, in the words of a sentence."""

    DEFINE = "made persistent"
    START = "started"
    MAKE = "made again"


class Place(Struct, frozen=True):
    """A PCI function that can make devices of the type that is enabled for it."""

    parent: PciAddress
    type_id: str
    available: int


class RestoredMdev(Struct, frozen=True):
    """One device that is brought back, or kept.

    :ivar parent: name of the node device that makes it.
    :ivar name: of its own node device; None: it has none.
    """

    action: MdevAction
    guest: Guest
    uuid: str
    type_id: str
    parent: str
    name: str | None = None

    def __str__(self) -> str:
        return (
            f"mediated device {self.uuid} of guest {self.guest.name} ({self.guest.uuid}), type "
            f"{self.type_id} of {self.parent}"
        )


class LostDevice(Struct, frozen=True):
    """A device whose place is unknown."""

    guest: Guest
    uuid: str
    places: tuple[Place, ...]

    def __str__(self) -> str:
        places = ", ".join(f"{place.type_id} of {place.parent}" for place in self.places)
        return (
            f"Guest {self.guest.name} ({self.guest.uuid}) does not start: its mediated device "
            f"{self.uuid} is gone and was never defined, and there is no record of where it was. "
            f"What can be made now: {places or 'nothing of an enabled type'}. Make it where the "
            f"allocations of the guest are, with: mdevctl define --auto --uuid {self.uuid} "
            f"--parent ADDRESS --type TYPE; mdevctl start --uuid {self.uuid}."
        )


def places_of(topology: HostTopology, types: tuple[MdevTypeOptions, ...]) -> tuple[Place, ...]:
    """Return where devices of enabled types can be made now, by address."""
    every_maker = (maker for gpu in topology.gpus for maker in makers(gpu))
    makers_with_types = ((maker, type_for(maker, types)) for maker in every_maker)
    return tuple(
        Place(maker.address, offered_type.id, offered_type.available_instances)
        for maker, chosen_type in makers_with_types
        for offered_type in maker.types
        if chosen_type
        and offered_type.id == chosen_type.type_id
        and offered_type.available_instances
    )


def steps(
    guests: Iterable[Guest],
    devices: Iterable[MdevNodeDevice],
    places: tuple[Place, ...],
    claimed_units_of: Claimed,
) -> Iterator[RestoredMdev | LostDevice]:
    """Decide what is done for each device that a guest holds, guest by guest.

    A guest that runs has its devices, listed or not: none is made for it.
    """
    devices_by_uuid = {device.uuid: device for device in devices}
    free = {place.parent: place.available for place in places}
    for guest in sorted(guests, key=lambda guest: guest.uuid):
        gone_mdevs = []
        for uuid in sorted(mdev.uuid for mdev in guest.mdevs):
            device = devices_by_uuid.get(uuid)
            if device is None:
                gone_mdevs.append(uuid)
            elif not device.active or not device.persistent:
                action = MdevAction.DEFINE if device.active else MdevAction.START
                yield RestoredMdev(action, guest, uuid, device.type_id, device.parent, device.name)
        if gone_mdevs and not guest.is_running:
            own = [
                devices_by_uuid[mdev.uuid].parent_address
                for mdev in guest.mdevs
                if mdev.uuid in devices_by_uuid
            ]
            yield from _again(guest, gone_mdevs, own, places, free, claimed_units_of(guest.uuid))


def _again(
    guest: Guest,
    gone_mdevs: list[str],
    own: list[PciAddress | None],
    places: tuple[Place, ...],
    free: dict[PciAddress, int],
    units: Collection[str],
) -> Iterator[RestoredMdev | LostDevice]:
    """Decide where the devices are made that are gone; counts down what is free.

    :param own: parents of the devices that the guest still has.
    """
    parents = [unit.partition("/")[0] for unit in units if "/" in unit]
    remaining_places = Counter(parents)
    remaining_places.subtract(str(parent) for parent in own)
    for uuid in gone_mdevs:
        candidates = [
            place
            for place in places
            if free[place.parent] and (remaining_places[place.parent] > 0 or not parents)
        ]
        if candidates and (parents or len(places) == 1):
            place = candidates[0]
            free[place.parent] -= 1
            remaining_places[place.parent] -= 1
            yield RestoredMdev(MdevAction.MAKE, guest, uuid, place.type_id, name_of(place.parent))
        else:
            yield LostDevice(guest, uuid, tuple(place for place in places if free[place.parent]))


def carry_out(connection: LibvirtConnection, todo: Iterable[RestoredMdev | LostDevice]) -> None:
    """Do what was decided. What fails is a warning, and does not keep the others from theirs.

    :raises HypervisorUnreachable: the connection is lost.
    """
    for step in todo:
        if isinstance(step, LostDevice):
            LOG.warning("%s", step)
            continue
        try:
            _ACTIONS[step.action](connection, step)
        except CallUnsupported as error:
            LOG.info("The %s cannot be %s: %s.", step, step.action.value, error)
        except CallFailed as error:
            LOG.warning(
                "The %s cannot be %s: %s. %s",
                step,
                step.action.value,
                error,
                _ADVICE[step.action].format(uuid=step.uuid),
            )
        else:
            LOG.info("The %s was %s.", step, step.action.value)


def _define(connection: LibvirtConnection, step: RestoredMdev) -> str:
    """Define it and return the name of its node device."""
    define = methodcaller("nodeDeviceDefineXML", _description(step), 0)
    name: str = connection.call(f"nodeDeviceDefineXML of {step.uuid}", define).name()
    try:
        _change(connection, f"setAutostart of {step.uuid}", name, methodcaller("setAutostart", 1))
    except CallFailed as error:
        LOG.info(
            "The %s does not start with the host: %s. The agent starts it instead.", step, error
        )
    return name


def _start(connection: LibvirtConnection, uuid: str, name: str | None) -> None:
    _change(connection, f"start of mediated device {uuid}", name, methodcaller("create", 0))


def _change(
    connection: LibvirtConnection,
    doing: str,
    name: str | None,
    change: Callable[[libvirt.virNodeDevice], object],
) -> None:
    """Change a device, again where libvirt has not listed it as a defined one yet.

    It lists the defined devices when it starts, which at the boot of a host is when the agent
    starts, and again after each change.
    """
    tenacity.Retrying(
        retry=tenacity.retry_if_exception(_is_not_listed),
        stop=tenacity.stop_after_delay(_LISTED_AGAIN),
        wait=tenacity.wait_fixed(0.2),
        reraise=True,
    )(connection.call, doing, lambda opened: change(opened.nodeDeviceLookupByName(name)))


def _is_not_listed(error: BaseException) -> bool:
    """Whether libvirt does not know the device, or takes it for one that is not defined."""
    import libvirt

    return isinstance(error, CallFailed) and error.code in (
        libvirt.VIR_ERR_NO_NODE_DEVICE,
        libvirt.VIR_ERR_OPERATION_INVALID,
    )


def _make(connection: LibvirtConnection, step: RestoredMdev) -> None:
    """Define and start it; one that cannot be defined is made until the next reboot only."""
    try:
        name = _define(connection, step)
    except CallUnsupported:
        raise
    except CallFailed as error:
        LOG.warning(
            "The %s cannot be made persistent: %s. It is made without, and is gone after the next "
            "reboot. Correct what mdevctl needs (its directory is /etc/mdevctl.d).",
            step,
            error,
        )
        make = methodcaller("nodeDeviceCreateXML", _description(step), 0)
        connection.call(f"nodeDeviceCreateXML of {step.uuid}", make)
    else:
        _start(connection, step.uuid, name)


_ACTIONS: Final[Mapping[MdevAction, Callable[[LibvirtConnection, RestoredMdev], object]]] = {
    MdevAction.DEFINE: _define,
    MdevAction.START: lambda connection, step: _start(connection, step.uuid, step.name),
    MdevAction.MAKE: _make,
}

_ADVICE: Final[Mapping[MdevAction, str]] = {
    MdevAction.DEFINE: (
        "It is gone after the next reboot of the host. Correct what mdevctl needs (its directory is"
        " /etc/mdevctl.d), and start the agent again."
    ),
    MdevAction.START: (
        "The guest does not start without it. Look at what holds its parent (mdevctl list), then: "
        "mdevctl start --uuid {uuid}."
    ),
    MdevAction.MAKE: (
        "The guest does not start without it. Look at what holds its parent (mdevctl list), then "
        "start the agent again."
    ),
}


def _description(step: RestoredMdev) -> str:
    return (
        f"<device><parent>{step.parent}</parent><capability type='mdev'>"
        f"<type id={quoteattr(step.type_id)}/><uuid>{step.uuid}</uuid></capability></device>"
    )
