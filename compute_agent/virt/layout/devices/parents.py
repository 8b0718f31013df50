"""Parents of devices: the provider that a device is placed under."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from compute_agent.discovery.facts import PciAddress
from compute_agent.virt.layout.compute_resources import cell_key
from compute_agent.virt.layout.wanted import ROOT


class DeviceParents(NamedTuple):
    """The cells that have providers; without any (flat layout) everything hangs under the root.

    A device whose cell is unknown hangs under the root too, but on a host of one cell under that.
    """

    provider_of: Mapping[int, int] = MappingProxyType({})
    """Cell of the machine -> cell that has its provider."""

    def of(
        self, address: PciAddress, numa_node: int | None, override: Mapping[PciAddress, int]
    ) -> str:
        """Return the key of the parent. `override`: what the operator knows better, by address."""
        node = override.get(address, numa_node)
        cells = set(self.provider_of.values())
        if node is not None and node in self.provider_of:
            return cell_key(self.provider_of[node])
        if len(cells) == 1:
            return cell_key(cells.pop())
        return ROOT
