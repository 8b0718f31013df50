"""Options of group libvirt: of the libvirt driver, and of every driver with a layout."""

from __future__ import annotations

from oslo_config import cfg

GROUP = "libvirt"

OPTS = [
    cfg.StrOpt(
        "virt_type",
        default="kvm",
        choices=["kvm", "qemu", "lxc", "parallels"],
        help="""
Kind of guests that are started on this host; decides what they can have, and which hypervisor is
connected to where connection_uri is empty: qemu:///system for kvm and qemu (emulated CPUs),
lxc:///, parallels:///system. Read by the libvirt driver.
""",
    ),
    cfg.StrOpt(
        "connection_uri",
        default="",
        help="""
URI of the hypervisor that the libvirt driver describes, as qemu:///system or
qemu+tls://host/system. Empty: the one of virt_type on this machine. Where it names another
machine, or libvirt's test driver, libvirt alone describes the host: nothing is taken from the
files below [host]sysfs_root.
""",
    ),
    cfg.BoolOpt(
        "cpu_power_management",
        default=False,
        help="""
Idle dedicated CPUs are switched off or slowed down, so that a dedicated CPU counts when it is
present, also while it is offline.
""",
    ),
    cfg.IntOpt(
        "file_backed_memory",
        default=0,
        min=0,
        help="""
MiB of file backed memory, reported as MEMORY_MB in place of the host's memory. 0: off. Cannot be
combined with reserved_host_memory_mb.
""",
    ),
    cfg.IntOpt(
        "num_intel_tdx_guests",
        min=0,
        help="""
How many guests with Intel TDX the host can run. Unset: what the kernel says.
""",
    ),
    cfg.StrOpt(
        "images_type",
        default="default",
        choices=["raw", "flat", "qcow2", "lvm", "rbd", "ploop", "default"],
        help="""
Where the guests' disks are kept. DISK_GB is the file system below [DEFAULT]instances_path, whatever
is set: this version measures neither volume groups nor pools, and warns where one is set and
DISK_GB does not come from a provider that shares it.
""",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of group libvirt on `conf`."""
    conf.register_opts(OPTS, group=GROUP)


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """Return the options by group, for the generator of the sample file."""
    return [(GROUP, OPTS)]
