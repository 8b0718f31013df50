"""NVLinks of a GPU: the devices that its memory reaches without the PCI bus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from compute_agent.discovery.facts import NvLink, PciAddress, pci_address
from compute_agent.discovery.nvml.binding import Nvml, text_of

MOST_LINKS = 64
"""Numbers asked for at most; the GPUs of today have up to 36."""


def address_of(pci: Any) -> PciAddress:
    """Return the address in NVML's facts of a PCI function."""
    return pci_address(text_of(pci.busId))


def states(nvml: Nvml, gpu: Any) -> tuple[bool, ...]:
    """Return whether each link is active, by number; () = none, or not reported.

    Raises GpuLost and NvmlStale.
    """
    active = []
    for number in range(MOST_LINKS):
        state = nvml.ask("nvmlDeviceGetNvLinkState", gpu, number, read=bool, is_numbered=True)
        if state is None:
            break
        active.append(state)
    return tuple(active)


def links(nvml: Nvml, gpu: Any, active: Sequence[bool]) -> tuple[NvLink, ...] | None:
    """Return the active links by remote device; None = not reported.

    `active`: the `states`. Raises as that does.
    """
    if not active:
        return None
    link_counts: Counter[tuple[PciAddress, str]] = Counter()
    for number in (number for number, is_active in enumerate(active) if is_active):
        remote = nvml.ask("nvmlDeviceGetNvLinkRemotePciInfo", gpu, number, read=address_of)
        if remote is not None:
            link_counts[remote, _kind(nvml, gpu, number)] += 1
    return tuple(sorted(NvLink(*device, amount) for device, amount in link_counts.items()))


def _kind(nvml: Nvml, gpu: Any, number: int) -> str:
    kind = nvml.ask_number("nvmlDeviceGetNvLinkRemoteDeviceType", gpu, number)
    names = {
        getattr(nvml.binding, "NVML_NVLINK_DEVICE_TYPE_GPU", 0): "gpu",
        getattr(nvml.binding, "NVML_NVLINK_DEVICE_TYPE_SWITCH", 2): "switch",
        getattr(nvml.binding, "NVML_NVLINK_DEVICE_TYPE_IBMNPU", 1): "cpu",
    }
    return "unknown" if kind is None else names.get(kind, "unknown")
