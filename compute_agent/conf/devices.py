"""Options of groups devices and mdev_<type>: the mediated devices (vGPUs) that are offered."""

from __future__ import annotations

from typing import Final

from oslo_config import cfg

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


OPTIONS: Final = {"devices": _OF_ALL, "mdev_<type>": _OF_A_TYPE}


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
