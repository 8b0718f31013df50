"""PCI devices that guests get whole, by [pci]device_spec.

A device or a PF is a provider of its own, total 1. VFs are counted together on the provider that
is named after their PF.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from compute_agent.discovery.facts import HostTopology, PciAddress, PciDevice
from compute_agent.provider_tree.trait_names import DEVICE_TYPE_PREFIX, HW_PCI_LIVE_MIGRATABLE
from compute_agent.virt.layout import names
from compute_agent.virt.layout.device_spec import DeviceSpec
from compute_agent.virt.layout.devices.parents import DeviceParents
from compute_agent.virt.layout.options import PciOptions
from compute_agent.virt.layout.wanted import WantedProvider, WantedRecord
from compute_agent.virt.traits import usable

MANAGED = "COMPUTE_MANAGED_PCI_DEVICE"
ONE_TIME_USE = "HW_PCI_ONE_TIME_USE"
TRUSTED = "HW_NIC_SRIOV_TRUSTED"


class GuestDevice(Struct, frozen=True):
    """A device that some specification gives to guests."""

    device: PciDevice
    spec: DeviceSpec

    @property
    def resource_class(self) -> str:
        return self.spec.class_of(self.device)

    @property
    def flags(self) -> dict[str, bool]:
        """The traits of its tags, and whether it has them."""
        return {
            HW_PCI_LIVE_MIGRATABLE: bool(self.spec.live_migratable),
            ONE_TIME_USE: self.spec.one_time_use,
            TRUSTED: self.spec.is_trusted,
        }

    @property
    def traits(self) -> tuple[str, ...]:
        """The traits that its specification gives it, sorted."""
        flags = (trait for trait, has in self.flags.items() if has)
        return tuple(sorted({*self.spec.traits, *flags}))


class PciLayout(Struct, frozen=True):
    providers: tuple[WantedProvider, ...]
    errors: tuple[str, ...]


def matches(topology: HostTopology, options: PciOptions) -> dict[PciAddress, DeviceSpec]:
    """Return the first specification that matches a device, by address."""
    specs = options.device_specs
    if not specs:
        return {}
    interfaces: dict[PciAddress, tuple[str, ...]] = {}
    for nic in (*topology.nics, *topology.infiniband_ports):
        interfaces[nic.address] = nic.names
        interfaces.update({vf.address: (vf.netdev,) for vf in nic.vfs if vf.netdev})
    first_specs = (
        (
            device.address,
            next((s for s in specs if s.matches(device, interfaces.get(device.address, ()))), None),
        )
        for device in topology.pci_devices
    )
    return {address: spec for address, spec in first_specs if spec is not None}


def claimed_devices(
    topology: HostTopology, options: PciOptions, specs: Mapping[PciAddress, DeviceSpec]
) -> dict[PciAddress, GuestDevice]:
    """Return the devices that placement shall count, by address.

    Devices with a physical network (they belong to network ports) and remote managed ones are not
    counted.

    :param specs: what `matches` returns.
    """
    if not options.report:
        return {}
    return {
        device.address: GuestDevice(device, spec)
        for device in topology.pci_devices
        if (spec := specs.get(device.address)) is not None
        and spec.physical_network is None
        and not spec.remote_managed
    }


def has_remote_managed(topology: HostTopology, options: PciOptions) -> bool:
    """Whether a device is there whose ports are managed elsewhere, as on a card with a CPU.

    Its card is known there by a serial number, without which a port cannot be bound.
    """
    ports = (*topology.nics, *topology.infiniband_ports)
    numbered = {port.address for port in ports if port.serial}
    owners = {device.address: device.physfn or device.address for device in topology.pci_devices}
    return any(
        spec.remote_managed and owners[address] in numbered
        for address, spec in matches(topology, options).items()
    )


def lay_out_pci(
    root_name: str,
    topology: HostTopology,
    claims: Mapping[PciAddress, GuestDevice],
    parents: DeviceParents,
    overrides: Mapping[PciAddress, int],
) -> PciLayout:
    """Lay out the devices claimed, by address of the provider's device."""
    by_address = {device.address: device for device in topology.pci_devices}
    claims_by_function: dict[PciAddress, list[GuestDevice]] = {}
    for address in sorted(claims):
        claim = claims[address]
        claims_by_function.setdefault(claim.device.physfn or address, []).append(claim)
    providers, errors = [], []
    for address, group in sorted(claims_by_function.items()):
        if problem := _contradiction(address, group):
            errors.append(problem)
            continue
        owner = by_address.get(address)
        numa_node = owner.numa_node if owner else group[0].device.numa_node
        providers.append(
            _provider(
                names.pci_name(root_name, address),
                address,
                group,
                parents.of(address, numa_node, overrides),
            )
        )
    return PciLayout(tuple(providers), tuple(errors))


def merge_pci(
    providers: Sequence[WantedProvider], pci: Sequence[WantedProvider]
) -> Iterator[WantedProvider]:
    """Yield both, one provider per device: a port that is passed whole is still a port.

    The parent, name and key of the first kind stay; the PCI layout adds inventory and traits.
    """
    pci_by_address = {provider.address: provider for provider in pci}
    for provider in providers:
        pci_provider = pci_by_address.pop(provider.address, None) if provider.address else None
        if pci_provider is None:
            yield provider
            continue
        yield replace(
            provider,
            inventory={**provider.inventory, **pci_provider.inventory},
            units={**provider.units, **pci_provider.units},
            traits=provider.traits | pci_provider.traits,
            absent_traits=(provider.absent_traits | pci_provider.absent_traits)
            - pci_provider.traits,
            absent_prefixes=provider.absent_prefixes + pci_provider.absent_prefixes,
            unmanaged_units=provider.unmanaged_units | pci_provider.unmanaged_units,
        )
    yield from pci_by_address.values()


def _contradiction(address: PciAddress, group: Sequence[GuestDevice]) -> str | None:
    kinds = {claim.device.is_vf for claim in group}
    if len(kinds) > 1:
        vfs = ", ".join(claim.device.address for claim in group if claim.device.is_vf)
        return (
            f"[pci]device_spec gives guests both the PF {address} and its VFs {vfs}; a PF is "
            f"either passed whole or its VFs are: narrow the specification, {_way_apart(group)}"
        )
    kinds_of_units = sorted({(claim.resource_class, ", ".join(claim.traits)) for claim in group})
    if len(kinds_of_units) > 1:
        listed_kinds = "; ".join(f"{rc} with {traits}" for rc, traits in kinds_of_units)
        return (
            f"[pci]device_spec gives the VFs of {address} different classes or traits "
            f"({listed_kinds}); they are counted on one provider and must be the same"
        )
    if any(claim.spec.one_time_use and claim.device.is_vf for claim in group):
        return (
            f"[pci]device_spec marks the VFs of {address} one_time_use, which is only possible "
            "for whole devices and PFs"
        )
    return None


def _way_apart(group: Sequence[GuestDevice]) -> str:
    """Say how an entry may name the VFs of a PF and not the PF."""
    card = next(claim.device for claim in group if not claim.device.is_vf)
    vf = next(claim.device for claim in group if claim.device.is_vf)
    if card.product_id != vf.product_id:
        return f"by product_id {vf.product_id} for the VFs or {card.product_id} for the PF"
    domain_bus, _colon, slot = vf.address.rpartition(":")
    return (
        f'by address, as card and VFs have the same ids: "address": "{domain_bus}:{slot[:2]}.*" '
        f'is for VFs, {{"domain": ..., "function": "..."}} for finer patterns'
    )


def _provider(
    name: str, address: PciAddress, group: Sequence[GuestDevice], parent: str
) -> WantedProvider:
    first = group[0]
    flags = {MANAGED: True, **first.flags}
    known_traits = usable(flags)
    # A VF gets its vDPA device while the host runs; until all have one they count as VFs.
    kind = "VDPA" if all(claim.device.vdpa is not None for claim in group) else first.device.kind
    return WantedProvider(
        address,
        name,
        parent=parent,
        inventory={
            first.resource_class: WantedRecord(
                len(group), keep_reserved=True, reserve_when_held=first.spec.one_time_use
            )
        },
        # an alias may ask for the trait of the type as `device_type`
        traits=usable([*first.spec.traits, f"{DEVICE_TYPE_PREFIX}{kind}"])
        | frozenset(t for t in known_traits if flags[t]),
        absent_traits=frozenset(t for t in known_traits if not flags[t]),
        absent_prefixes=(DEVICE_TYPE_PREFIX,),
        address=address,
        units={first.resource_class: tuple(sorted(claim.device.address for claim in group))},
        unmanaged_units=frozenset(
            claim.device.address for claim in group if not claim.spec.is_managed
        ),
    )
