"""PCI root ports with several devices behind them, as providers between cell and devices.

    <root>_NUMA0
     └ <root>_PCIE_0000:16:01.0       no inventory              CUSTOM_PCIE_ROOT
        ├ <root>_pci_0000_19_00_0     VGPU
        └ <root>_NIC_0000:1a:00.0     -                         CUSTOM_NIC_ROOT

Several devices behind one root port means a switch: what they send each other need not pass the
CPU. A root port with one device has no provider, as nothing could be asked of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from compute_agent.discovery.facts import HostTopology, PciAddress
from compute_agent.virt.layout import names
from compute_agent.virt.layout.devices.nics import CARD_KEY
from compute_agent.virt.layout.wanted import WantedProvider

PCIE_ROOT = "CUSTOM_PCIE_ROOT"


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
