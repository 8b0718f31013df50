"""Parents of devices: the root, a NUMA cell, or a PCI root port with several devices behind it.

    <root>_NUMA0
     └ <root>_PCIE_0000:16:01.0       no inventory              CUSTOM_PCIE_ROOT
        ├ <root>_pci_0000_19_00_0     VGPU
        └ <root>_NIC_0000:1a:00.0     -                         CUSTOM_NIC_ROOT

Several devices behind one root port means a switch: what they send each other need not pass the
CPU. A root port with one device has no provider, as nothing could be asked of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from compute_agent.discovery.facts import HostTopology, PciAddress
from compute_agent.virt.layout import names
from compute_agent.virt.layout.compute_resources import cell_key
from compute_agent.virt.layout.wanted import ROOT, WantedProvider

PCIE_ROOT = "CUSTOM_PCIE_ROOT"
CARD_KEY = "nic:"
"""Beginning of the key of a card: without a MAC it would be that of the card's first port."""


class DeviceParents(Struct, frozen=True):
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


def below_root_ports(
    root_name: str, topology: HostTopology, providers: Sequence[WantedProvider]
) -> Iterator[WantedProvider]:
    """Yield the providers, those of devices that share a root port below a provider for that.

    Devices whose operator gave them different cells stay where they are.
    """
    port_of = _ports(topology, providers)
    members: dict[PciAddress, list[WantedProvider]] = defaultdict(list)
    for provider in providers:
        if provider.key in port_of:
            members[port_of[provider.key][0]].append(provider)
    parents = {
        port: together[0].parent
        for port, together in members.items()
        if len({port_of[member.key][1] for member in together}) > 1
        and len({member.parent for member in together}) == 1
    }
    begun_ports = set()
    for provider in providers:
        port = port_of[provider.key][0] if provider.key in port_of else None
        if port is None or port not in parents:
            yield provider
            continue
        key = f"pcie:{port}"
        if port not in begun_ports:
            begun_ports.add(port)
            yield WantedProvider(
                key,
                names.root_port_name(root_name, port),
                parent=parents[port],
                traits=frozenset({PCIE_ROOT}),
            )
        yield replace(provider, parent=key)


def _ports(
    topology: HostTopology, providers: Sequence[WantedProvider]
) -> dict[str, tuple[PciAddress, str]]:
    """Return root port and slot of the cards and single devices behind one, by key."""
    functions = {device.address: device for device in topology.pci_devices}
    ports: dict[str, tuple[PciAddress, str]] = {}
    for provider in providers:
        device = functions.get(provider.address) if provider.address else None
        if device is None:
            continue
        owner = functions.get(device.physfn, device) if device.physfn else device
        is_port = provider.parent.startswith(CARD_KEY)
        if owner.bridges:
            place = owner.bridges[0], owner.address.rpartition(".")[0]
            ports.setdefault(provider.parent if is_port else provider.key, place)
    return ports
