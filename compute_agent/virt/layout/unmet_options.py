"""Options that name nothing of this machine, and parts of it that no option reports. Pure.

An entry that is right on other hosts of a fleet may mean nothing here, so none of them ends a
start; each is in the status, in `doctor` and once in the log, with what it named, what is there,
and the nearest name.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from compute_agent.discovery import cpu_list
from compute_agent.discovery.facts import HostTopology, NicPort, PciAddress, PciDevice
from compute_agent.programs.printable import first_of
from compute_agent.virt.layout.device_spec import DeviceSpec
from compute_agent.virt.layout.devices.nics import reported_ports, reports_nics
from compute_agent.virt.layout.devices.vgpus import makers
from compute_agent.virt.layout.options import LayoutOptions
from compute_agent.virt.layout.wanted import HostLayout, UnmetOption

NAMED: Final = 8
"""So many names are in one sentence."""
NEAR: Final = 0.5
"""The part of two names that is the same, from which on one may have been meant for the other."""

Matches = Mapping[PciAddress, DeviceSpec]
"""The specification that decides about a function, by address."""


def unmet_options(
    topology: HostTopology, options: LayoutOptions, matches: Matches
) -> Iterator[UnmetOption]:
    """Yield the entries, option by option."""
    yield from _shared_cpus(topology, options)
    yield from _tdx_guests(topology, options)
    yield from _mdev_types(topology, options)
    yield from _device_specs(topology, options, matches)
    yield from _devices_of_the_host(topology, matches)
    yield from _physnets(topology, options, matches)
    yield from _network_cells(topology, options)
    gpus = [gpu.address for gpu in topology.gpus]
    ports = [port.address for port in (*topology.nics, *topology.infiniband_ports)]
    yield from _overrides("gpu", options.gpu.numa_node_override, topology, gpus)
    yield from _overrides("nic", options.nic.numa_node_override, topology, ports)


def unreported(topology: HostTopology, layout: HostLayout, options: LayoutOptions) -> Iterator[str]:
    """Yield a sentence for each kind of which the machine has some and the layout none."""
    reported = {provider.address for provider in layout.providers if provider.inventory}
    if len(topology.cells) > 1 and not options.is_nested:
        yield (
            f"The {len(topology.cells)} NUMA cells of this host are reported as one: placement "
            "does not see which cell is full. "
            "[compute]enable_numa_reporting_to_placement = True reports each; the next start then "
            "moves what guests hold to their cells (a reshape), and they run on."
        )
    gpus = [gpu.address for gpu in topology.gpus]
    if gpus and not reported.intersection(gpus):
        yield (
            f"{len(gpus)} GPU(s) are not reported ({gpus[0]}): no guest gets one through "
            "placement. [devices]enabled_mdev_types reports vGPUs, [pci]device_spec whole GPUs; "
            "guests that have one already are given its allocation at the next start."
        )
    ports = [nic for nic in topology.nics if nic.vfs]
    addresses = {nic.address for nic in ports} | {vf.address for nic in ports for vf in nic.vfs}
    if ports and not reported & addresses:
        yield (
            f"{sum(len(nic.vfs) for nic in ports)} virtual functions of network cards are not "
            f"reported ({ports[0].address}). [nic]report_vfs = always counts them, also without "
            "NUMA cells; guests that have some keep them, and hold none in placement until they "
            "are healed or moved."
        )


def _shared_cpus(topology: HostTopology, options: LayoutOptions) -> Iterator[UnmetOption]:
    present = frozenset(map(int, topology.present_cpus))
    named_cpus = options.cpu_sets.shared_cpus or frozenset()
    if absent := named_cpus - present:
        yield UnmetOption(
            "compute",
            "cpu_shared_set",
            f"names CPUs {cpu_list.write(absent)}, which this machine does not have; it has "
            f"{cpu_list.write(present)}",
            cpu_list.write(named_cpus & present) or cpu_list.write(topology.online_cpus),
        )


def _tdx_guests(topology: HostTopology, options: LayoutOptions) -> Iterator[UnmetOption]:
    keys = dict(topology.memory_encryption.capacity).get("tdx")
    if keys is not None and options.tdx_guests is not None and options.tdx_guests > keys:
        reason = f"is {options.tdx_guests}, and the kernel has keys for {keys}: these are reported"
        yield UnmetOption("libvirt", "num_intel_tdx_guests", reason, str(keys))


def _mdev_types(topology: HostTopology, options: LayoutOptions) -> Iterator[UnmetOption]:
    offered_types: set[str] = set()
    addresses: set[str] = set()
    for gpu in topology.gpus:
        offered_types.update(kind.id for kind in gpu.vgpu_types)
        for maker in makers(gpu):
            offered_types.update(kind.id for kind in maker.types)
            offered_types.update(mdev.type_id for mdev in maker.mdevs)
            addresses.update((maker.address, maker.gpu))
    enabled_types = [kind.type_id for kind in options.gpu.mdev_types]
    for kind in options.gpu.mdev_types:
        if kind.type_id not in offered_types:
            yield UnmetOption(
                "devices",
                "enabled_mdev_types",
                f"names {kind.type_id}, which no GPU here offers; "
                + _there(offered_types, kind.type_id),
                ",".join(type_id for type_id in enabled_types if type_id in offered_types),
            )
        for address in kind.device_addresses:
            if address not in addresses:
                yield UnmetOption(
                    f"mdev_{kind.type_id}",
                    "device_addresses",
                    f"names {address}, where nothing makes mediated devices; "
                    + _there(addresses, address),
                )


def _device_specs(
    topology: HostTopology, options: LayoutOptions, matches: Matches
) -> Iterator[UnmetOption]:
    for spec in options.pci.device_specs:
        if spec in matches.values():
            continue
        earlier = [device.address for device in topology.pci_devices if spec.matches(device)]
        reason = (
            f"all devices of {spec.entry} ({first_of(earlier, NAMED)}) are of an entry before it"
            if earlier
            else f"{spec.entry} matches no device; {_nearest_devices(topology, spec)}"
        )
        yield UnmetOption("pci", "device_spec", f"has an entry without effect: {reason}")
    if not reports_nics(options.nic, is_nested=options.is_nested):
        return
    counted_addresses: set[PciAddress] = set()
    for port in _ports_with_functions(topology, options, matches):
        counted_addresses.update((port.address, *(vf.address for vf in port.vfs)))
    for spec in options.pci.device_specs:
        left_out = [
            address
            for address, owner in matches.items()
            if owner is spec
            and spec.physical_network is not None
            and not spec.remote_managed
            and address not in counted_addresses
        ]
        if left_out:
            yield UnmetOption(
                "pci",
                "device_spec",
                f"gives {first_of(left_out, NAMED)} to the network {spec.physical_network} "
                f"({spec.entry}), and they are no functions of a network port with SR-IOV: they "
                "are not counted",
            )


def _nearest_devices(topology: HostTopology, spec: DeviceSpec) -> str:
    devices = topology.pci_devices
    if spec.devname is not None:
        return _there((name for port in topology.nics for name in port.names), spec.devname)
    named_ids = f"{spec.vendor_id or '*'}:{spec.product_id or '*'}"
    here = [device for device in devices if spec.address.matches(device.address)]
    of_vendor = [device for device in devices if device.vendor_id == spec.vendor_id]
    has_ids = spec.vendor_id is not None or spec.product_id is not None
    if has_ids and here and len(here) < len(devices):
        return f"at its address {_there(map(_ids, here), named_ids)}"
    if has_ids:
        return _there(map(_ids, of_vendor or devices), named_ids)
    written_address = str(json.loads(spec.entry).get("address"))
    return _there((device.address for device in devices), written_address)


def _ids(device: PciDevice) -> str:
    return f"{device.vendor_id}:{device.product_id}"


def _devices_of_the_host(topology: HostTopology, matches: Matches) -> Iterator[UnmetOption]:
    """Yield the functions that guests may get and through which the host itself talks."""
    for port in (*topology.nics, *topology.infiniband_ports):
        functions = {vf.address: vf.netdev for vf in port.vfs if vf.in_use_by_host}
        if port.in_use_by_host:
            functions[port.address] = port.name
        for address, interface in functions.items():
            spec = matches.get(address)
            if spec is None or spec.physical_network is not None:
                continue
            yield UnmetOption(
                "pci",
                "device_spec",
                f"gives guests {address}, through which this host itself talks ({interface} has "
                f"an address or is part of a bond or bridge): a guest that gets it takes the host "
                f"off its network; leave it out of {spec.entry}",
            )


def _ports_with_functions(
    topology: HostTopology, options: LayoutOptions, matches: Matches
) -> list[NicPort]:
    return [port for port in reported_ports(topology, options.nic, matches) if port.is_pf]


def _physnets(
    topology: HostTopology, options: LayoutOptions, matches: Matches
) -> Iterator[UnmetOption]:
    is_reported = reports_nics(options.nic, is_nested=options.is_nested)
    ports = _ports_with_functions(topology, options, matches)
    names = {name for port in ports for name in port.names}
    for interface, network in options.nic.physnets.items():
        if not is_reported:
            reason = "has no effect, as network cards are not reported; set report_vfs = always"
        elif interface in names:
            continue
        elif network in names:
            reason = f"is the wrong way round: write {interface}:{network}, the network first"
        else:
            reason = (
                f"names the interface {interface}, which is none of a port with SR-IOV; "
                + _there(names, interface)
            )
        yield UnmetOption("nic", "physnet_mappings", f"{network}:{interface} {reason}")


def _network_cells(topology: HostTopology, options: LayoutOptions) -> Iterator[UnmetOption]:
    cells = frozenset(int(cell.id) for cell in topology.cells)
    for group, named_cells in options.network_cells.items():
        if absent := named_cells - cells:
            yield UnmetOption(
                group,
                "numa_nodes",
                f"names NUMA cells {cpu_list.write(absent)}, which this machine does not have; it "
                f"has {cpu_list.write(cells)}",
                ",".join(map(str, sorted(named_cells & cells))),
            )


def _overrides(
    group: str,
    override: Mapping[PciAddress, int],
    topology: HostTopology,
    addresses: Iterable[PciAddress],
) -> Iterator[UnmetOption]:
    known_addresses = {device.address for device in topology.pci_devices}
    cells = [int(cell.id) for cell in topology.cells]
    for address, cell in override.items():
        if address not in known_addresses:
            reason = f"names {address}, where there is no device; {_there(addresses, address)}"
            yield UnmetOption(group, "numa_node_override", reason)
        elif cell not in cells:
            yield UnmetOption(
                group,
                "numa_node_override",
                f"puts {address} on NUMA cell {cell}, which this machine does not have; it has "
                f"{', '.join(map(str, cells))}",
            )


def _there(names: Iterable[str], named: str) -> str:
    """Say what is there, and what of it is nearest to what was named."""
    known_names = sorted(set(names))
    if not known_names:
        return "there is none"
    from difflib import SequenceMatcher  # only for a wrong name

    nearest = max(known_names, key=lambda name: SequenceMatcher(None, named, name).ratio())
    is_near = SequenceMatcher(None, named, nearest).ratio() >= NEAR
    suggestion = f"; nearest is {nearest}" if is_near and len(known_names) > 1 else ""
    return f"there is {first_of(known_names, NAMED)}{suggestion}"
