"""Guests known to be on this host: what the driver lists, and what was claimed here.

A driver that cannot list its guests is not one without guests: what it is silent of may run here,
and what was claimed here counts as being here until its claim is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec import Struct

from compute_agent.state.claim import Claim

if TYPE_CHECKING:
    from compute_agent.virt.driver import ComputeDriver, InstanceDevices

BUILDING_SECONDS = 3600.0
"""An instance whose claim is younger may still be on its way to run here: no driver lists it."""


class Presence(Struct, frozen=True):
    """Consumers that are known to be here.

    :ivar running_guests: instances that the driver lists; None: it cannot tell.
    :ivar claimed_consumers: consumers of claims. Where the driver lists what runs, only those that
        may still be being built.
    """

    running_guests: frozenset[str] | None
    claimed_consumers: frozenset[str]

    @property
    def known_consumers(self) -> frozenset[str]:
        """All of them, which is not all there is where `running_guests` is None."""
        return self.claimed_consumers | (self.running_guests or frozenset())


def presence(driver: ComputeDriver, claims: Iterable[Claim], now: float) -> Presence:
    """Return who is known to be here.

    :param now: seconds since the epoch.
    :raises HypervisorUnavailable: and whatever else the driver raises.
    """
    guest_uuids = driver.list_instance_uuids()
    since = now - BUILDING_SECONDS
    claiming_consumers = frozenset(
        c.consumer for c in claims if guest_uuids is None or c.claimed_at > since
    )
    return Presence(None if guest_uuids is None else frozenset(guest_uuids), claiming_consumers)


def guests(driver: ComputeDriver, claims: Iterable[Claim]) -> dict[str, InstanceDevices | None]:
    """Return what each guest that is known here has of the host; None: the driver cannot tell.

    Where the driver does not list its guests, those with a claim are asked for.
    """
    devices_of_guests = driver.get_devices_of_instances()
    if devices_of_guests is None:
        return {c.instance: driver.get_instance_devices(c.instance) for c in claims}
    return dict(devices_of_guests)


def cannot_tell(driver: ComputeDriver) -> str:
    """Return the sentence about a driver that does not list its guests."""
    return (
        f"the driver {type(driver).__name__} cannot list the guests of this host, so what "
        "holds something of it is never reported as gone"
    )
