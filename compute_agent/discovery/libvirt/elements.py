"""Elements of libvirt's XML documents, and the errors that malformed ones raise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from compute_agent.discovery.errors import FactMalformed
from compute_agent.discovery.facts import PciAddress
from compute_agent.discovery.pci_address import pci_address

_BYTES: Final[Mapping[str, int]] = {
    "b": 1,
    "bytes": 1,
    **{name: 1000**power for power, name in enumerate(("KB", "MB", "GB", "TB"), 1)},
    **{name: 1024**power for power, name in enumerate(("k", "M", "G", "T"), 1)},
    **{name: 1024**power for power, name in enumerate(("KiB", "MiB", "GiB", "TiB"), 1)},
}


LONGEST: Final = 4 << 20
"""Characters; what libvirt writes of a guest of a thousand CPUs and disks is a tenth."""


def document(text: str, name: str) -> Element:
    """Return the root element of a document.

    :param name: of the document or of the call that returned it, for the message.
    :raises FactMalformed: `text` is not XML, or longer than libvirt's documents are.
    """
    if len(text) > LONGEST:
        raise FactMalformed(name, text, f"an XML document of at most {LONGEST} characters")
    try:
        return ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError) as error:
        raise FactMalformed(name, text, f"an XML document ({error})") from error


def number(text: str | None, name: str) -> int:
    """Return a decimal number.

    :param name: of the element or attribute, for the message.
    :raises FactMalformed: there is none, or something else.
    """
    stripped_text = (text or "").strip()
    if not (stripped_text.isascii() and stripped_text.isdecimal()) or len(stripped_text) > 19:
        raise FactMalformed(name, text or "", "a decimal number")
    return int(stripped_text)


def kib(element: Element, name: str, attribute: str | None = None) -> int:
    """Return the size that an element with the attribute `unit` (KiB if absent) holds, in KiB.

    :param attribute: that holds the number; None: the text does.
    :raises FactMalformed: it is not a number, or its unit is unknown.
    """
    unit = element.get("unit", "KiB")
    if unit not in _BYTES:
        raise FactMalformed(f"{name}@unit", unit, "a unit such as KiB")
    text = element.text if attribute is None else element.get(attribute)
    return number(text, name) * _BYTES[unit] // 1024


def text(parent: Element, path: str) -> str | None:
    """Return the text of an element below another; None: there is none."""
    return (parent.findtext(path) or "").strip() or None


def address(element: Element) -> PciAddress:
    """Return the PCI address in the attributes of an element, hexadecimal with or without 0x.

    :raises ValueError: it has none.
    """
    parts = (int(element.get(part, ""), 16) for part in ("domain", "bus", "slot", "function"))
    return pci_address("{:x}:{:x}:{:x}.{:x}".format(*parts))
