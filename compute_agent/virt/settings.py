"""From configuration options to the values layouts work with; every contradiction is found here.

Nothing here looks at the machine: what does not fit it is found by the layout.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from oslo_config import cfg
from oslo_log import log

from compute_agent import errors
from compute_agent.conf.networks import TUNNEL, physnet_group
from compute_agent.discovery.facts import PciAddress
from compute_agent.discovery.pci_address import pci_address
from compute_agent.discovery.storage import CephPool, DiskSource, FileSystem, VolumeGroup
from compute_agent.fitting.host import PlanOptions
from compute_agent.programs.whole_numbers import whole_number
from compute_agent.virt.cpu_sets import CpuSets, parse_cpu_set
from compute_agent.virt.layout.device_spec import parse_device_specs
from compute_agent.virt.layout.options import (
    GpuOptions,
    LayoutOptions,
    MdevTypeOptions,
    NicOptions,
    PciOptions,
    Ratio,
    ReservedPages,
)
from compute_agent.virt.layout.pmem import parse_pmem_namespaces

LOG = log.getLogger(__name__)

_SIZE = re.compile(r"(?P<number>\d+)\s*(?P<unit>[KMGT]?)(?:i?B)?", re.IGNORECASE)
_KIB = {"": 1, "K": 1, "M": 1024, "G": 1024**2, "T": 1024**3}
_CUSTOM_CLASS = re.compile(r"CUSTOM_[A-Z0-9_]{1,248}")


def plan_options(conf: cfg.ConfigOpts) -> PlanOptions:
    """Return how plans of what a guest gets are preferred, by agents and schedulers."""
    return PlanOptions(
        packing=conf.compute.packing_host_numa_cells_allocation_strategy,
        keep_links=conf.gpu.keep_links,
        spare_device_cells=conf.compute.spare_device_cells,
    )


def layout_options(conf: cfg.ConfigOpts) -> LayoutOptions:
    """Return the options of the layout.

    :raises InvalidConfiguration: an option that cannot be used, with its value and a way out.
    """
    cpu_sets = _cpu_sets(conf)
    if conf.reserved_host_cpus and (
        cpu_sets.shared_cpus is not None or cpu_sets.dedicated_cpus is not None
    ):
        raise errors.InvalidConfiguration(
            f"[DEFAULT]reserved_host_cpus = {conf.reserved_host_cpus} cannot be combined with "
            "[compute]cpu_shared_set or [compute]cpu_dedicated_set. CPUs in neither set are the "
            "host's: leave those out of the sets and set reserved_host_cpus to 0."
        )
    file_backed = conf.libvirt.file_backed_memory
    if file_backed and conf.reserved_host_memory_mb:
        raise errors.InvalidConfiguration(
            f"[libvirt]file_backed_memory = {file_backed} cannot be combined with "
            f"[DEFAULT]reserved_host_memory_mb = {conf.reserved_host_memory_mb}. Set "
            "reserved_host_memory_mb to 0."
        )
    return LayoutOptions(
        is_nested=conf.compute.enable_numa_reporting_to_placement,
        cpu_sets=cpu_sets,
        # only this strategy switches CPUs off, and on again when they are needed
        cpu_power_management=conf.libvirt.cpu_power_management
        and conf.libvirt.cpu_power_management_strategy == "cpu_state",
        reserved_cpus=conf.reserved_host_cpus,
        reserved_memory_mib=conf.reserved_host_memory_mb,
        reserved_memory_mib_per_cell=dict(_memory_per_cell(conf)),
        reserved_pages=tuple(map(_reserved_pages, conf.reserved_huge_pages or ())),
        reserved_disk_mib=conf.reserved_host_disk_mb,
        file_backed_memory_mib=file_backed,
        tdx_guests=conf.libvirt.num_intel_tdx_guests,
        network_cells={
            group: frozenset(conf[group].numa_nodes)
            for group in (*map(physnet_group, conf.neutron.physnets), TUNNEL)
        },
        ratios={
            "VCPU": Ratio(conf.cpu_allocation_ratio, conf.initial_cpu_allocation_ratio),
            "MEMORY_MB": Ratio(conf.ram_allocation_ratio, conf.initial_ram_allocation_ratio),
            "DISK_GB": Ratio(conf.disk_allocation_ratio, conf.initial_disk_allocation_ratio),
        },
        gpu=_gpu(conf),
        nic=_nic(conf),
        pci=PciOptions(
            report=conf.pci.report_in_placement,
            report_root_ports=conf.pci.report_root_ports,
            device_specs=parse_device_specs(
                conf.pci.device_spec, report=conf.pci.report_in_placement
            ),
        ),
        pmem=parse_pmem_namespaces(conf.libvirt.pmem_namespaces),
    )


def disk_source(conf: cfg.ConfigOpts) -> DiskSource:
    """Return what measures the store of the guests' disks, by [libvirt]images_type.

    :raises InvalidConfiguration: the store has no name.
    """
    options = conf.libvirt
    if options.images_type == "lvm":
        if not options.images_volume_group:
            raise errors.InvalidConfiguration(
                "[libvirt]images_type is lvm and [libvirt]images_volume_group is not set. Name the "
                "volume group that holds the disks of guests."
            )
        return VolumeGroup(options.images_volume_group)
    if options.images_type == "rbd":
        return CephPool(options.images_rbd_pool, options.images_rbd_ceph_conf, options.rbd_user)
    return FileSystem(conf.instances_path)


def _cpu_sets(conf: cfg.ConfigOpts) -> CpuSets:
    shared_set, dedicated_set = conf.compute.cpu_shared_set, conf.compute.cpu_dedicated_set
    shared_option = "[compute]cpu_shared_set"
    if conf.vcpu_pin_set:
        if shared_set or dedicated_set:
            raise errors.InvalidConfiguration(
                "[DEFAULT]vcpu_pin_set is obsolete and cannot be combined with "
                "[compute]cpu_shared_set or [compute]cpu_dedicated_set. Remove it."
            )
        LOG.warning(
            "[DEFAULT]vcpu_pin_set is obsolete; it is read as [compute]cpu_shared_set. Rename it."
        )
        shared_set, shared_option = conf.vcpu_pin_set, "[DEFAULT]vcpu_pin_set"
    return CpuSets(
        parse_cpu_set(shared_set, shared_option) if shared_set else None,
        parse_cpu_set(dedicated_set, "[compute]cpu_dedicated_set") if dedicated_set else None,
    )


def _memory_per_cell(conf: cfg.ConfigOpts) -> Iterator[tuple[int, int]]:
    for cell, mib in conf.compute.reserved_host_memory_mb_per_numa.items():
        number = whole_number(cell)
        if number is None:
            raise errors.InvalidConfiguration(
                f"[compute]reserved_host_memory_mb_per_numa: {cell!r} is not the number of a NUMA "
                "cell; write for example 0:2048,1:512."
            )
        yield number, mib


def _reserved_pages(entry: Mapping[str, str]) -> ReservedPages:
    text = ",".join(f"{key}:{value}" for key, value in entry.items())
    if set(entry) != {"node", "size", "count"}:
        raise errors.InvalidConfiguration(
            f"[DEFAULT]reserved_huge_pages = {text} needs node, size and count and nothing "
            "else, for example node:0,size:2048,count:64."
        )
    node, count = whole_number(entry["node"]), whole_number(entry["count"])
    size = _SIZE.fullmatch(entry["size"].strip())
    number = whole_number(size["number"]) if size else None
    if size is None or node is None or count is None or number is None:
        raise errors.InvalidConfiguration(
            f"[DEFAULT]reserved_huge_pages = {text}: node and count are numbers, size is in "
            "KiB or has a unit (2048, 2MB, 1GB)."
        )
    return ReservedPages(node, number * _KIB[size["unit"].upper()], count)


def _gpu(conf: cfg.ConfigOpts) -> GpuOptions:
    types = tuple(_mdev_types(conf))
    _check_addresses(types)
    return GpuOptions(
        mdev_types=types,
        vf_providers=conf.gpu.vf_providers,
        max_vgpus_per_guest=conf.gpu.max_vgpus_per_guest,
        type_traits=conf.gpu.type_traits,
        mig_classes=conf.gpu.mig_classes,
        nvlink_traits=conf.gpu.nvlink_traits,
        report_memory_cells=conf.gpu.report_memory_cells,
        numa_node_override=_overrides("[gpu]", conf.gpu.numa_node_override),
    )


def _mdev_types(conf: cfg.ConfigOpts) -> Iterator[MdevTypeOptions]:
    for type_id in dict.fromkeys(conf.devices.enabled_mdev_types):
        group: Any = conf[f"mdev_{type_id}"]
        if group.mdev_class != "VGPU" and not _CUSTOM_CLASS.fullmatch(group.mdev_class):
            raise errors.InvalidConfiguration(
                f"[mdev_{type_id}]mdev_class = {group.mdev_class} is neither VGPU nor a name that "
                "starts with CUSTOM_ and has upper case letters, digits and _ only."
            )
        option = f"[mdev_{type_id}]device_addresses"
        yield MdevTypeOptions(
            type_id,
            tuple(_address(option, text) for text in group.device_addresses),
            group.mdev_class,
            group.max_instances,
        )


def _check_addresses(types: tuple[MdevTypeOptions, ...]) -> None:
    owner: dict[PciAddress, str] = {}
    for mdev_type in types:
        for address in mdev_type.device_addresses:
            if address in owner:
                raise errors.InvalidConfiguration(
                    f"[mdev_{mdev_type.type_id}]device_addresses and "
                    f"[mdev_{owner[address]}]device_addresses both name {address}. A device makes "
                    "one type: take it out of one of the two."
                )
            owner[address] = mdev_type.type_id
    without_devices = [t.type_id for t in types if not t.device_addresses]
    if ignored_types := without_devices[1:]:
        LOG.warning(
            "[devices]enabled_mdev_types names %s without device_addresses. Only one type needs "
            "none, the first without: no device makes these. Name their devices, or remove them.",
            ", ".join(ignored_types),
        )


def _nic(conf: cfg.ConfigOpts) -> NicOptions:
    physnets = {}
    for mapping in conf.nic.physnet_mappings:
        network, colon, interface = mapping.partition(":")
        if not (colon and network.strip() and interface.strip()):
            raise errors.InvalidConfiguration(
                f"[nic]physnet_mappings: {mapping!r} is not <physical network>:<interface>."
            )
        if interface.strip() in physnets:
            raise errors.InvalidConfiguration(
                f"[nic]physnet_mappings names {interface.strip()} twice. An interface is on one "
                "physical network: remove one of the two."
            )
        physnets[interface.strip()] = network.strip()
    return NicOptions(
        report_vfs=conf.nic.report_vfs,
        report_bandwidth=conf.nic.report_bandwidth,
        bandwidth_share=conf.nic.bandwidth_share,
        physnets=physnets,
        numa_node_override=_overrides("[nic]", conf.nic.numa_node_override),
    )


def _overrides(group: str, values: Mapping[str, int]) -> dict[PciAddress, int]:
    option = f"{group}numa_node_override"
    return {_address(option, text): cell for text, cell in values.items()}


def _address(option: str, text: str) -> PciAddress:
    try:
        return pci_address(text)
    except ValueError as error:
        raise errors.InvalidConfiguration(f"{option}: {error}.") from error
