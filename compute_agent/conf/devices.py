"""Options of groups devices, mdev_<type>, gpu, nic and pci: the devices that guests get."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oslo_config import cfg
from oslo_config import types as cfg_types

_CELL_SEPARATOR: Final = "="
"""Of an address and its cell: an address is full of colons."""

_OF_ALL: Final[list[cfg.Opt]] = [
    cfg.ListOpt(
        "enabled_mdev_types",
        default=[],
        deprecated_name="enabled_vgpu_types",
        help="""
Types of mediated devices (vGPUs) that guests may get, for example nvidia-35,nvidia-36.

The group [mdev_<type>] of a type can name its devices (device_addresses). The first type that names
none gets all devices that no other type names. Any further type that names none is ignored.
""",
    ),
]

_OF_A_TYPE: Final[list[cfg.Opt]] = [
    cfg.ListOpt(
        "device_addresses",
        default=[],
        help="""
PCI addresses of the devices that make this type, for example 0000:84:00.0,0000:85:00.0. Empty:
if this type is the first of enabled_mdev_types without any, all devices that no other type names,
else none.
""",
    ),
    cfg.StrOpt(
        "mdev_class",
        default="VGPU",
        help="""
Resource class of the devices: VGPU, or a name that starts with CUSTOM_.
""",
    ),
    cfg.IntOpt(
        "max_instances",
        min=1,
        help="""
Maximum number of devices of this type on one physical device. Unset: the number that the physical
device reports. A host that nova-compute ran keeps another meaning in its file: there the option
limits the virtual functions that are used, and a device without virtual functions that could have
more than so many offers nothing; here such a device offers so many.
""",
    ),
]


def _override(help_text: str) -> cfg.Opt:
    return cfg.Opt(
        "numa_node_override",
        type=cfg_types.Dict(cfg_types.Integer(min=0), key_value_separator=_CELL_SEPARATOR),
        default={},
        help=help_text,
    )


def override_text(cells: Mapping[str, int | str]) -> str:
    """Return the value of numa_node_override that gives each address its cell."""
    return ",".join(f"{address}{_CELL_SEPARATOR}{cell}" for address, cell in sorted(cells.items()))


OPTIONS: Final[dict[str, list[cfg.Opt]]] = {
    "devices": _OF_ALL,
    "mdev_<type>": _OF_A_TYPE,
    "gpu": [
        cfg.StrOpt(
            "nvml",
            default="auto",
            choices=[
                ("auto", "use NVIDIA's management library if it is installed"),
                ("never", "read sysfs only"),
            ],
            help="""
Whether to read GPUs from NVIDIA's management library (NVML) in addition to sysfs.

NVML provides the model, memory, stable UUID, compute capability and MIG devices. Set it to never
if the library hangs or is not wanted; the GPUs are still reported.
""",
        ),
        cfg.StrOpt(
            "vf_providers",
            default="auto",
            choices=[
                ("auto", "per_vf if placement already has such providers, else per_pf"),
                ("per_vf", "one provider per virtual function"),
                ("per_pf", "one provider per GPU, counting its virtual functions"),
            ],
            help="""
How the virtual functions of a GPU with SR-IOV become providers. Each of them makes one vGPU.

With per_vf, a host with 8 GPUs of 16 virtual functions has 128 providers. This is how other
compute services report them, and it makes every search for candidates slower.
""",
        ),
        cfg.IntOpt(
            "max_vgpus_per_guest",
            min=1,
            help="""
Maximum number of vGPUs of one physical GPU that one guest may get. Some vendor drivers allow
only 1. Unset: no limit, except the limit that NVML reports for the type.
""",
        ),
        cfg.BoolOpt(
            "type_traits",
            default=True,
            help="""
Add the trait CUSTOM_MDEV_<TYPE> to the provider of a GPU that makes vGPUs of that type.
""",
        ),
        cfg.BoolOpt(
            "mig_classes",
            default=False,
            help="""
Report existing MIG devices, with one resource class for each profile, for example
CUSTOM_MIG_1G_10GB. A claim names the UUIDs of its devices. MIG devices that could still be
created on a GPU are not counted; `compute-agent status` shows them.
""",
        ),
        cfg.BoolOpt(
            "nvlink_traits",
            default=True,
            help="""
Add the trait CUSTOM_NVLINK_GROUP_<N> to the providers of GPUs that are connected by NVLinks, which
needs NVML, and CUSTOM_XGMI_GROUP_<N> to those of AMD that are connected by XGMI. N counts from 0 on
each host.
""",
        ),
        cfg.BoolOpt(
            "keep_links",
            default=True,
            help="""
Give a guest of one GPU one of a group of linked GPUs that is broken already, so that whole groups
stay for guests of several. The agent and the scheduler read it.
""",
        ),
        cfg.BoolOpt(
            "report_memory_cells",
            default=False,
            help="""
Report NUMA cells that consist of the memory of a GPU (Grace Hopper) as memory for guests.
""",
        ),
        _override("""
NUMA cell of GPUs for which the firmware reports no cell or a wrong cell, for example
0000:84:00.0=1,0000:c4:00.0=3.
"""),
    ],
    "nic": [
        cfg.StrOpt(
            "report_vfs",
            default="auto",
            choices=[
                ("auto", "if NUMA cells are reported"),
                ("always", "in the flat layout too"),
                ("never", "virtual functions are not counted"),
            ],
            help="""
Whether network cards with SR-IOV become providers that count their virtual functions
(SRIOV_NET_VF). If virtual functions are not counted, network cards become providers only with
report_bandwidth.
""",
        ),
        cfg.BoolOpt(
            "report_bandwidth",
            default=False,
            help="""
Report NET_BW_EGR_KILOBIT_PER_SEC and NET_BW_IGR_KILOBIT_PER_SEC of each port, from the speed of
its link. Use it only in clouds without Neutron: the agents of Neutron report bandwidth on
providers of their own.
""",
        ),
        cfg.FloatOpt(
            "bandwidth_share",
            default=0.9,
            min=0.0,
            max=1.0,
            help="""
Share of the speed of a link that guests may get, from 0 to 1. Used with report_bandwidth.
""",
        ),
        cfg.ListOpt(
            "physnet_mappings",
            default=[],
            help="""
Physical network of each interface, for example physnet0:enp129s0f0,physnet1:enp129s0f1. It is
reported as the trait CUSTOM_PHYSNET_<NETWORK> of the port.
""",
        ),
        _override("""
NUMA cell of network cards for which the firmware reports no cell or a wrong cell, for example
0000:81:00.0=1,0000:81:00.1=1.
"""),
    ],
    "pci": [
        cfg.MultiStrOpt(
            "device_spec",
            default=[],
            deprecated_opts=[
                cfg.DeprecatedOpt("passthrough_whitelist"),
                cfg.DeprecatedOpt("pci_passthrough_whitelist", group="DEFAULT"),
            ],
            help="""
PCI devices that guests may get, as JSON: a dict, or a list of dicts. May be given several times;
the first dict that matches a device is used.

A dict matches by vendor_id, product_id, and address (a string with globs such as *:0a:00.*, or a
dict of the regular expressions domain, bus, slot, function) or devname. Tags: physical_network,
trusted, remote_managed, managed (no: the hypervisor does not change the driver of the device),
live_migratable, one_time_use, resource_class, traits.
""",
        ),
        cfg.MultiStrOpt(
            "alias",
            default=[],
            deprecated_opts=[cfg.DeprecatedOpt("pci_alias", group="DEFAULT")],
            help="""
Name with which a flavor requests a kind of PCI device, as JSON: name, vendor_id, product_id,
device_type (type-PCI, type-PF, type-VF, type-VDPA; default: type-PCI or type-VF), numa_policy
(legacy, preferred, required, socket), resource_class, traits, live_migratable (yes: only devices
that can migrate with a running guest; no: only other devices).
""",
        ),
        cfg.BoolOpt(
            "report_in_placement",
            default=False,
            help="""
Report the devices of device_spec as inventory in placement. Devices with a physical_network and
remote managed devices are not reported. device_spec must then match by address or by vendor_id
and product_id, not by devname.
""",
        ),
        cfg.BoolOpt(
            "report_root_ports",
            default=False,
            help="""
Report each PCI root port that has several reported devices behind it as a provider with the
trait CUSTOM_PCIE_ROOT, between the NUMA cell and these devices. GPUs and network cards of one
PCI switch can then be requested together. Devices that were reported before only get another
parent.
""",
        ),
    ],
}


def mdev_group(mdev_type: str) -> str:
    """Return the name of the group with the options of one mdev type."""
    return f"mdev_{mdev_type}"


def register_numbered_groups(conf: cfg.ConfigOpts) -> None:
    """Register group mdev_<type> for every enabled type; the old group vgpu_<type> is read too."""
    for mdev_type in conf.devices.enabled_mdev_types:
        group = mdev_group(mdev_type)
        old_group = f"vgpu_{mdev_type}"
        for opt in _OF_A_TYPE:
            renamed_option = type(opt)(
                opt.name,
                **{
                    **({"min": 1} if opt.name == "max_instances" else {}),
                    "default": opt.default,
                    "help": opt.help,
                    "deprecated_group": old_group,
                },
            )
            conf.register_opt(renamed_option, group=group)
