"""PCI addresses in one spelling, from the several that sources have."""

from __future__ import annotations

import re

from compute_agent.discovery.facts import PciAddress

_PCI_ADDRESS = (
    r"(?:(?P<domain>[0-9a-fA-F]{1,8}):)?"
    r"(?P<bus>[0-9a-fA-F]{1,2}):(?P<device>[0-9a-fA-F]{1,2})\.(?P<function>[0-7])"
)
_USUAL_LENGTH = len("0000:81:00.0")
_NORMALISED = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def pci_address(text: str) -> PciAddress:
    """Normalise any spelling of a PCI address: `00000000:84:00.0` (NVML), `84:00.0` (lspci).

    :raises ValueError: `text` is not one.
    """
    if len(text) == _USUAL_LENGTH and _NORMALISED.fullmatch(text):
        return PciAddress(text)  # as the kernel writes it, thousands of times in a look
    match = re.fullmatch(_PCI_ADDRESS, text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a PCI address such as 0000:81:00.0")
    domain, bus, device, function = (int(part or "0", 16) for part in match.groups())
    return PciAddress(f"{domain:04x}:{bus:02x}:{device:02x}.{function}")


def is_pci_address(text: str) -> bool:
    """Whether this is a PCI address as `pci_address` writes it."""
    return _NORMALISED.fullmatch(text) is not None


def order(address: PciAddress) -> tuple[int, ...]:
    """Sort key: addresses as numbers, since domains differ in length."""
    domain, bus, rest = address.split(":")
    device, function = rest.split(".")
    return int(domain, 16), int(bus, 16), int(device, 16), int(function, 16)
