"""Resource classes of devices, for the order of hosts and for their distance from a guest."""

from __future__ import annotations

from typing import Final

_PARTS_OF_HOSTS: Final = frozenset(("VCPU", "PCPU", "MEMORY_MB", "DISK_GB"))
_RATES: Final = ("NET_BW_", "NET_PACKET_RATE_")
_WITHOUT_PLACE: Final = "MEM_ENCRYPTION_CONTEXT"


def is_special(resource_class: str) -> bool:
    """Return whether only some hosts have units of a class: devices, and encrypted memory.

    Other classes are handed out in many small parts: kilobits per second would outnumber all
    devices.
    """
    return resource_class not in _PARTS_OF_HOSTS and not resource_class.startswith(_RATES)


def is_device(resource_class: str) -> bool:
    """Return whether units of a class are devices, which are near some NUMA cell or far from it."""
    return is_special(resource_class) and resource_class != _WITHOUT_PLACE
