"""Serial numbers of PCI cards, out of their vital product data.

The data is a list of resources; in the read-only one (tag 0x90) keywords of two letters follow each
other, `SN` being the serial number:

    82 <len> name of the product   90 <len> PN <len> ... SN <len> ... RV <len> ...   78

Only root may read it, the first read of a card can take milliseconds, and it never changes: it is
read once for each card in the life of the process.

Source: PCI Local Bus Specification 3.0, appendix I.
"""

from __future__ import annotations

from contextlib import suppress

from compute_agent.discovery.errors import FactUnreadable
from compute_agent.discovery.sysfs.pci import PciFunction
from compute_agent.discovery.sysfs.reader import Machine

VPD = "vpd"
LIMIT = 32768  # the format's own

PLACEHOLDERS = frozenset(
    {
        *("n/a", "na", "none", "null", "empty", "unknown", "default", "default string"),
        *("not specified", "not available", "not applicable", "serial number", "serialnumber"),
        *("to be filled by o.e.m.", "system serial number", "oem"),
    }
)
"""What makers leave in the place of a number, lower case; besides characters that are all the same,
and digits that count up from 0 or 1."""

_COUNTING = "01234567890123456789"
_READ_ONLY = 0x90
_LARGE = 0x80
"""A bit of the tag; the only resource without it is the end."""
_SERIAL = b"SN"


class SerialNumbers:
    """Reads serial numbers, and keeps them for the next discovery."""

    def __init__(self) -> None:
        self._known_numbers: dict[tuple[str, ...], str | None] = {}

    def of(self, machine: Machine, function: PciFunction) -> str | None:
        """Return the card's serial number; None when it has none or it may not be read."""
        device = function.device
        key = (machine.sys.root, device.address, device.vendor_id, device.product_id)
        if key not in self._known_numbers:
            # not for others than root, or of a card whose data times out: usual, and the address
            # stands in for it
            with suppress(FactUnreadable):
                data = machine.sys.data(f"{function.directory}/{VPD}", LIMIT)
                self._known_numbers[key] = serial_number(data)
        return self._known_numbers.setdefault(key, None)


def serial_number(data: bytes) -> str | None:
    """Return the serial number in vital product data; None without one or in damaged data."""
    position = 0
    while position + 3 <= len(data):
        tag = data[position]
        if not tag & _LARGE:
            return None
        length = int.from_bytes(data[position + 1 : position + 3], "little")
        content = data[position + 3 : position + 3 + length]
        if tag == _READ_ONLY:
            return _keyword(content, _SERIAL)
        position += 3 + length
    return None


def identity(text: str | None) -> str | None:
    """Return the serial number that a text is; None for one that boards share."""
    number = (text or "").strip(" \0")
    is_placeholder = (
        len(set(number)) < 2 or number.lower() in PLACEHOLDERS or _COUNTING.find(number) in (0, 1)
    )
    return None if is_placeholder or not number.isprintable() else number


def _keyword(content: bytes, name: bytes) -> str | None:
    position = 0
    while position + 3 <= len(content):
        length = content[position + 2]
        value = content[position + 3 : position + 3 + length]
        if content[position : position + 2] == name:
            return identity(value.decode("ascii", "replace"))
        position += 3 + length
    return None
