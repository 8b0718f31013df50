"""Options of groups devices, mdev_<type>, gpu, nic and pci: the devices that guests get."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Final

from oslo_config import cfg
from oslo_config import types as cfg_types

from compute_agent.programs.declared_options import options

_CELL_SEPARATOR: Final = "="
"""Of an address and its cell: an address is full of colons."""

_OF_A_TYPE: Final = options("""
device_addresses: list ()
    PCI addresses of the devices that make this type, for example 0000:84:00.0,0000:85:00.0. Empty:
    if this type is the first of enabled_mdev_types without any, all devices that no other type
    names, else none.

mdev_class: text (VGPU)
    Resource class of the devices: VGPU, or a name that starts with CUSTOM_.

max_instances: int 1..
    Maximum number of devices of this type on one physical device. Unset: the number that the
    physical device reports. A host that nova-compute ran keeps another meaning in its file: there
    the option limits the virtual functions that are used, and a device without virtual functions
    that could have more than so many offers nothing; here such a device offers so many.
""")

_BY_ADDRESS: Final = {
    "type": cfg_types.Dict(cfg_types.Integer(min=0), key_value_separator=_CELL_SEPARATOR),
    "default": {},
}


def override_text(cells: Mapping[str, int | str]) -> str:
    """Return the value of numa_node_override that gives each address its cell."""
    return ",".join(f"{address}{_CELL_SEPARATOR}{cell}" for address, cell in sorted(cells.items()))


OPTIONS: Final = {
    "devices": options(
        """
enabled_mdev_types: list ()
    Types of mediated devices (vGPUs) that guests may get, for example nvidia-35,nvidia-36.

    The group [mdev_<type>] of a type can name its devices (device_addresses). The first type that
    names none gets all devices that no other type names. Any further type that names none is
    ignored.
""",
        enabled_mdev_types={"deprecated_name": "enabled_vgpu_types"},
    ),
    "mdev_<type>": _OF_A_TYPE,
    "gpu": options(
        """
nvml: text (auto)
    Whether to read GPUs from NVIDIA's management library (NVML) in addition to sysfs.

    NVML provides the model, memory, stable UUID, compute capability and MIG devices. Set it to
    never if the library hangs or is not wanted; the GPUs are still reported.

    - auto: use NVIDIA's management library if it is installed
    - never: read sysfs only

vf_providers: text (auto)
    How the virtual functions of a GPU with SR-IOV become providers. Each of them makes one vGPU.

    With per_vf, a host with 8 GPUs of 16 virtual functions has 128 providers. This is how other
    compute services report them, and it makes every search for candidates slower.

    - auto: per_vf if placement already has such providers, else per_pf
    - per_vf: one provider per virtual function
    - per_pf: one provider per GPU, counting its virtual functions

max_vgpus_per_guest: int 1..
    Maximum number of vGPUs of one physical GPU that one guest may get. Some vendor drivers allow
    only 1. Unset: no limit, except the limit that NVML reports for the type.

type_traits: bool (true)
    Add the trait CUSTOM_MDEV_<TYPE> to the provider of a GPU that makes vGPUs of that type.

mig_classes: bool (false)
    Report existing MIG devices, with one resource class for each profile, for example
    CUSTOM_MIG_1G_10GB. A claim names the UUIDs of its devices. MIG devices that could still be
    created on a GPU are not counted; `compute-agent status` shows them.

nvlink_traits: bool (true)
    Add the trait CUSTOM_NVLINK_GROUP_<N> to the providers of GPUs that are connected by NVLinks,
    which needs NVML, and CUSTOM_XGMI_GROUP_<N> to those of AMD that are connected by XGMI. N counts
    from 0 on each host.

keep_links: bool (true)
    Give a guest of one GPU one of a group of linked GPUs that is broken already, so that whole
    groups stay for guests of several. The agent and the scheduler read it.

report_memory_cells: bool (false)
    Report NUMA cells that consist of the memory of a GPU (Grace Hopper) as memory for guests.

numa_node_override: value
    NUMA cell of GPUs for which the firmware reports no cell or a wrong cell, for example
    0000:84:00.0=1,0000:c4:00.0=3.
""",
        numa_node_override=_BY_ADDRESS,
    ),
    "nic": options(
        """
report_vfs: text (auto)
    Whether network cards with SR-IOV become providers that count their virtual functions
    (SRIOV_NET_VF). If virtual functions are not counted, network cards become providers only with
    report_bandwidth.

    - auto: if NUMA cells are reported
    - always: in the flat layout too
    - never: virtual functions are not counted

report_bandwidth: bool (false)
    Report NET_BW_EGR_KILOBIT_PER_SEC and NET_BW_IGR_KILOBIT_PER_SEC of each port, from the speed of
    its link. Use it only in clouds without Neutron: the agents of Neutron report bandwidth on
    providers of their own.

bandwidth_share: float 0..1 (0.9)
    Share of the speed of a link that guests may get, from 0 to 1. Used with report_bandwidth.

physnet_mappings: list ()
    Physical network of each interface, for example physnet0:enp129s0f0,physnet1:enp129s0f1. It is
    reported as the trait CUSTOM_PHYSNET_<NETWORK> of the port.

numa_node_override: value
    NUMA cell of network cards for which the firmware reports no cell or a wrong cell, for example
    0000:81:00.0=1,0000:81:00.1=1.
""",
        numa_node_override=_BY_ADDRESS,
    ),
    "pci": options(
        """
device_spec: texts ()
    PCI devices that guests may get, as JSON: a dict, or a list of dicts. May be given several
    times; the first dict that matches a device is used.

    A dict matches by vendor_id, product_id, and address (a string with globs such as *:0a:00.*, or
    a dict of the regular expressions domain, bus, slot, function) or devname. Tags:
    physical_network, trusted, remote_managed, managed (no: the hypervisor does not change the
    driver of the device), live_migratable, one_time_use, resource_class, traits.

alias: texts ()
    Name with which a flavor requests a kind of PCI device, as JSON: name, vendor_id, product_id,
    device_type (type-PCI, type-PF, type-VF, type-VDPA; default: type-PCI or type-VF), numa_policy
    (legacy, preferred, required, socket), resource_class, traits, live_migratable (yes: only
    devices that can migrate with a running guest; no: only other devices).

report_in_placement: bool (false)
    Report the devices of device_spec as inventory in placement. Devices with a physical_network and
    remote managed devices are not reported. device_spec must then match by address or by vendor_id
    and product_id, not by devname.

report_root_ports: bool (false)
    Report each PCI root port that has several reported devices behind it as a provider with the
    trait CUSTOM_PCIE_ROOT, between the NUMA cell and these devices. GPUs and network cards of one
    PCI switch can then be requested together. Devices that were reported before only get another
    parent.
""",
        device_spec={
            "deprecated_opts": [
                cfg.DeprecatedOpt("passthrough_whitelist"),
                cfg.DeprecatedOpt("pci_passthrough_whitelist", group="DEFAULT"),
            ]
        },
        alias={"deprecated_opts": [cfg.DeprecatedOpt("pci_alias", group="DEFAULT")]},
    ),
}


def mdev_group(mdev_type: str) -> str:
    """Return the name of the group with the options of one mdev type."""
    return f"mdev_{mdev_type}"


def register_numbered_groups(conf: cfg.ConfigOpts) -> None:
    """Register group mdev_<type> for every enabled type; the old group vgpu_<type> is read too."""
    for mdev_type in conf.devices.enabled_mdev_types:
        for option in copy.deepcopy(_OF_A_TYPE):
            option.deprecated_opts.append(cfg.DeprecatedOpt(None, group=f"vgpu_{mdev_type}"))
            conf.register_opt(option, group=mdev_group(mdev_type))
