"""Names of providers, and the device that a name speaks of.

| provider            | name                                            |
|---------------------|-------------------------------------------------|
| NUMA cell           | <root>_NUMA<cell>                               |
| its huge pages      | <root>_NUMA<cell>_PAGES<KiB>                    |
| GPU that makes vGPUs| <root>_pci_0000_84_00_0 (libvirt's device name) |
| PCI device, PF      | <root>_0000:84:00.0, hex digits in upper case   |
| network card        | <root>_NIC_0000:18:00.0, of function 0          |
| PCI root port       | <root>_PCIE_0000:16:01.0                        |
| memory encryption   | <root>_amd_sev, <root>_intel_tdx, ...           |

Other services hang providers with a colon after the host's name under the same root
(<host>:NIC Switch agent): those never match.
"""

from __future__ import annotations

import re
from typing import Final

from compute_agent.discovery.facts import PciAddress
from compute_agent.discovery.pci_address import pci_address
from compute_agent.provider_tree import MAX_NAME, provider_name

MEMORY_ENCRYPTION_MODELS: Final = ("amd_sev", "amd_sev_es", "amd_sev_snp", "intel_tdx")

_ADDRESS = r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]"
_LIBVIRT_ADDRESS = r"[0-9a-f]{4,8}_[0-9a-f]{2}_[0-9a-f]{2}_[0-7]"
_CELL = r"_NUMA\d+(?:_PAGES\d+)?"
_DEVICE = rf"_(?:pci_(?P<libvirt>{_LIBVIRT_ADDRESS})|(?P<plain>{_ADDRESS}))"
_OURS = (
    rf"_(?:NUMA\d+(?:_PAGES\d+)?|pci_{_LIBVIRT_ADDRESS}|(?:NIC_|PCIE_)?{_ADDRESS}"
    rf"|{'|'.join(MEMORY_ENCRYPTION_MODELS)})(?:~[0-9a-f]{{8}})?"
)
_CUT = r"~[0-9a-f]{8}$"


def cell_name(root: str, cell: int) -> str:
    return provider_name(f"{root}_NUMA{cell}")


def pages_name(root: str, cell: int, size_kib: int) -> str:
    return provider_name(f"{root}_NUMA{cell}_PAGES{size_kib}")


def gpu_name(root: str, address: PciAddress) -> str:
    return provider_name(f"{root}_pci_{re.sub('[:.]', '_', address)}")


def pci_name(root: str, address: PciAddress) -> str:
    return provider_name(f"{root}_{address.upper()}")


def card_name(root: str, address: PciAddress) -> str:
    return provider_name(f"{root}_NIC_{address.upper()}")


def root_port_name(root: str, address: PciAddress) -> str:
    return provider_name(f"{root}_PCIE_{address.upper()}")


def memory_encryption_name(root: str, model: str) -> str:
    return provider_name(f"{root}_{model}")


def is_cell(root: str, name: str) -> bool:
    """Whether this is the name of a NUMA cell, or of huge pages of one."""
    return name.startswith(root) and re.fullmatch(_CELL, name[len(root) :]) is not None


def is_ours(root: str, name: str) -> bool:
    """Whether a layout gives names of this form to providers under `root`.

    Of a name that was cut only the beginning can be recognised.
    """
    if len(name) == MAX_NAME and re.search(_CUT, name):
        return name.startswith(root[: MAX_NAME - len("_~00000000")])
    return name.startswith(root) and re.fullmatch(_OURS, name[len(root) :]) is not None


def device_address(root: str, name: str) -> PciAddress | None:
    """Return the PCI address at the end of a device's name (cards and root ports are none)."""
    match = re.fullmatch(_DEVICE, name[len(root) :]) if name.startswith(root) else None
    if match is None:
        return None
    text = match["plain"]
    if text is None:
        domain, bus, slot, function = match["libvirt"].split("_")
        text = f"{domain}:{bus}:{slot}.{function}"
    return pci_address(text)
