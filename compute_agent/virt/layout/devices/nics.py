"""Network cards with SR-IOV: a provider per card, below it one per port (PF) that counts VFs.

    <root>_NIC_0000:18:00.0      no inventory              CUSTOM_NIC_ROOT
     ├ <root>_0000:18:00.0       SRIOV_NET_VF              CUSTOM_PHYSNET_..., HW_NIC_...
     └ <root>_0000:18:00.1       SRIOV_NET_VF

The units of SRIOV_NET_VF are the addresses of the functions that guests can have: all but the
host's own, which are in the total and reserved.

Bandwidth providers of Neutron's agents (<host>:NIC Switch agent:<interface>) are theirs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from compute_agent.discovery.facts import HostTopology, NicCard, NicPort, NicVf, PciAddress
from compute_agent.discovery.nic_cards import cards
from compute_agent.provider_tree.trait_names import DEVICE_TYPE_PREFIX
from compute_agent.virt.layout import names
from compute_agent.virt.layout.device_spec import DeviceSpec
from compute_agent.virt.layout.devices.parents import CARD_KEY, DeviceParents
from compute_agent.virt.layout.devices.pci import MANAGED, TRUSTED, GuestDevice
from compute_agent.virt.layout.options import NicOptions
from compute_agent.virt.layout.wanted import WantedProvider, WantedRecord
from compute_agent.virt.traits import standard_traits

NIC_ROOT = "HW_NIC_ROOT"
OUR_NIC_ROOT = "CUSTOM_NIC_ROOT"
"""In its place as long as os-traits has no standard name for it."""
INFINIBAND = "CUSTOM_NIC_INFINIBAND"
PHYSNET_PREFIX = "CUSTOM_PHYSNET_"
VF_CLASS = "SRIOV_NET_VF"
BANDWIDTH_CLASSES = ("NET_BW_EGR_KILOBIT_PER_SEC", "NET_BW_IGR_KILOBIT_PER_SEC")

OFFLOADS: Mapping[str, str] = {
    "gro": "GRO",
    "gso": "GSO",
    "lro": "LRO",
    "rdma": "RDMA",
    "rx": "RX",
    "rxhash": "RXHASH",
    "rxvlan": "RXVLAN",
    "sg": "SG",
    "switchdev": "SWITCHDEV",
    "tso": "TSO",
    "tx": "TX",
    "txudptnl": "TXUDP",
    "txvlan": "TXVLAN",
    "ufo": "UFO",
}
"""Features by libvirt's names, each a trait HW_NIC_OFFLOAD_..."""

_ALWAYS_TOLD = frozenset({"rdma", "switchdev"})
"""sysfs knows these two; only libvirt knows the others, so elsewhere absence proves nothing."""

_VNIC_TYPES = ("DIRECT", "DIRECT_PHYSICAL", "MACVTAP", "VDPA")


def reports_nics(options: NicOptions, *, is_nested: bool) -> bool:
    """Whether cards become providers at all: in the flat layout only on request."""
    return _counts_vfs(options, is_nested=is_nested) or options.report_bandwidth


def _counts_vfs(options: NicOptions, *, is_nested: bool) -> bool:
    return options.report_vfs == "always" or (options.report_vfs == "auto" and is_nested)


def physnet_trait(network: str) -> str:
    """Return the trait of a physical network, spelt as Neutron spells it."""
    return PHYSNET_PREFIX + re.sub(r"[^A-Z0-9_]", "_", network.upper())


def _network_functions(
    port: NicPort, matches: Mapping[PciAddress, DeviceSpec]
) -> dict[PciAddress, DeviceSpec]:
    """Return the functions of a port that device specifications give to physical networks."""
    functions = (port.address, *(vf.address for vf in port.vfs))
    specs = {function: matches[function] for function in functions if function in matches}
    return {f: spec for f, spec in specs.items() if spec.physical_network is not None}


def reported_ports(
    topology: HostTopology, options: NicOptions, matches: Mapping[PciAddress, DeviceSpec]
) -> tuple[NicPort, ...]:
    """Return the ports of Ethernet, and those of InfiniBand whose network an option names.

    A request for a function of any network means Ethernet; one for that network gets it.
    """
    return (
        *topology.nics,
        *(
            port
            for port in topology.infiniband_ports
            if options.physnets.keys() & set(port.names) or _network_functions(port, matches)
        ),
    )


def uncounted_functions(
    topology: HostTopology,
    options: NicOptions,
    matches: Mapping[PciAddress, DeviceSpec],
) -> Iterator[str]:
    """Yield a sentence for each port of InfiniBand with functions that no option mentions."""
    reported_addresses = {port.address for port in reported_ports(topology, options, matches)}
    for port in topology.infiniband_ports:
        functions = [vf.address for vf in port.vfs if vf.address not in matches]
        if functions and port.address not in reported_addresses:
            yield (
                f"the {len(functions)} functions of the InfiniBand port {port.address} "
                f"({port.name or 'without an interface'}) are not counted: name its network in "
                "[nic]physnet_mappings, or the functions in [pci]device_spec"
            )


def lay_out_nics(
    root_name: str,
    topology: HostTopology,
    options: NicOptions,
    parents: DeviceParents,
    *,
    is_nested: bool,
    claims: Mapping[PciAddress, GuestDevice],
    matches: Mapping[PciAddress, DeviceSpec],
) -> Iterator[WantedProvider]:
    """Lay out every card that has a port with SR-IOV, the card before its ports.

    :param claims: functions that the PCI layout counts, whole ports and single VFs.
    :param matches: the specification that decides about a function.
    """
    ports = {port.address: port for port in reported_ports(topology, options, matches)}
    nic_cards = cards(ports.values(), topology.pci_devices)
    counts_vfs = _counts_vfs(options, is_nested=is_nested)
    keys = _card_keys(nic_cards)
    root_trait = NIC_ROOT if NIC_ROOT in standard_traits() else OUR_NIC_ROOT
    for card in nic_cards:
        yield WantedProvider(
            keys[card.address],
            names.card_name(root_name, card.address),
            parent=parents.of(card.address, card.numa_node, options.numa_node_override),
            traits=frozenset({root_trait}),
            absent_traits=frozenset({NIC_ROOT, OUR_NIC_ROOT}) - {root_trait},
        )
        for address in card.ports:
            port = ports[address]
            whole = claims.get(address)
            vfs: tuple[NicVf, ...] = ()
            if whole is None and counts_vfs:
                vfs = tuple(vf for vf in port.vfs if vf.address not in claims)
            yield _port(root_name, keys[card.address], port, vfs, options, whole, matches)


def _card_keys(nic_cards: Sequence[NicCard]) -> dict[PciAddress, str]:
    """Return the stable key of each card: its identity, or its address where that is not unique."""
    identities = {card.address: card.mac or card.serial or card.address for card in nic_cards}
    counts = Counter(identities.values())
    return {
        address: f"{CARD_KEY}{identity if counts[identity] == 1 else address}"
        for address, identity in identities.items()
    }


def _port(
    root_name: str,
    parent: str,
    port: NicPort,
    vfs: Sequence[NicVf],
    options: NicOptions,
    whole: GuestDevice | None,
    matches: Mapping[PciAddress, DeviceSpec],
) -> WantedProvider:
    traits = {"HW_NIC_SRIOV": port.is_pf, INFINIBAND: port.is_infiniband}
    traits |= _offloads(port)
    traits |= _vnic_types(port, passed_whole=whole is not None)
    specs = _network_functions(port, matches)
    if specs:
        traits[TRUSTED] = all(spec.is_trusted for spec in specs.values())
    networks = {options.physnets[name] for name in port.names if name in options.physnets}
    networks = networks or {spec.physical_network or "" for spec in specs.values()}
    present = {trait for trait, has in traits.items() if has}
    present.update(physnet_trait(network) for network in networks)
    inventory = {VF_CLASS: WantedRecord(len(vfs), sum(vf.in_use_by_host for vf in vfs))}
    if options.report_bandwidth:
        bandwidth = int((port.speed_mbps or 0) * 1000 * options.bandwidth_share)
        inventory |= dict.fromkeys(BANDWIDTH_CLASSES, WantedRecord(bandwidth))
    return WantedProvider(
        port.address,
        names.pci_name(root_name, port.address),
        parent=parent,
        inventory=inventory,
        traits=frozenset(present),
        absent_traits=frozenset({MANAGED, *(t for t, has in traits.items() if not has)}),
        # without a mapping an operator may have put the network there by hand
        absent_prefixes=(DEVICE_TYPE_PREFIX, *((PHYSNET_PREFIX,) if networks else ())),
        address=port.address,
        units={VF_CLASS: tuple(vf.address for vf in vfs if not vf.in_use_by_host)} if vfs else {},
        unmanaged_units=frozenset(
            function for function, spec in specs.items() if not spec.is_managed
        ),
    )


def _offloads(port: NicPort) -> dict[str, bool]:
    features = frozenset(port.features)
    told_features = OFFLOADS.keys() if features - _ALWAYS_TOLD else _ALWAYS_TOLD
    return {f"HW_NIC_OFFLOAD_{OFFLOADS[name]}": name in features for name in sorted(told_features)}


def _vnic_types(port: NicPort, *, passed_whole: bool) -> dict[str, bool]:
    present = set()
    if passed_whole:
        present.add("DIRECT_PHYSICAL")
    elif port.vfs:
        present.add("DIRECT")
        if any(vf.netdev for vf in port.vfs) and not port.is_infiniband:
            present.add("MACVTAP")
        if any(vf.vdpa for vf in port.vfs):
            present.add("VDPA")
    return {f"CUSTOM_VNIC_TYPE_{name}": name in present for name in _VNIC_TYPES}
