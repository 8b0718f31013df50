"""Options of groups devices and mdev_<type>: the mediated devices (vGPUs) that are offered."""

from __future__ import annotations

from oslo_config import cfg

GROUP = "devices"

device_opts = [
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

mdev_opts = [
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


def mdev_group(mdev_type: str) -> str:
    """Return the name of the group with the options of one mdev type."""
    return f"mdev_{mdev_type}"


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of group devices on `conf`."""
    conf.register_opts(device_opts, group=GROUP)


def register_dynamic_opts(conf: cfg.ConfigOpts) -> None:
    """Register group mdev_<type> for every enabled type; the old group vgpu_<type> is read too."""
    for mdev_type in conf.devices.enabled_mdev_types:
        group = mdev_group(mdev_type)
        old_group = f"vgpu_{mdev_type}"
        for opt in mdev_opts:
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


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """Return the options by group, for the generator of the sample file."""
    return [(GROUP, list(device_opts)), (mdev_group("<type>"), list(mdev_opts))]
