"""Resource classes that are devices, for the order of hosts and of candidates."""

from __future__ import annotations

from typing import Final

_SHARED_OUT: Final = frozenset(("VCPU", "PCPU", "MEMORY_MB", "DISK_GB"))
_RATES: Final = ("NET_BW_", "NET_PACKET_RATE_")


def is_device(resource_class: str) -> bool:
    """Return whether units of a class are devices, or parts of some.

    Others are handed out in many small parts. Kilobits per second would outnumber all devices.
    """
    return resource_class not in _SHARED_OUT and not resource_class.startswith(_RATES)
