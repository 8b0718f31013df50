"""Options of group libvirt: what the hypervisor gives to guests, hence what the host can offer.

There is no libvirt driver yet: cpu_power_management, file_backed_memory and num_intel_tdx_guests
count for every driver with a layout, the others are read so that a file that has them stays valid.
"""

from __future__ import annotations

from oslo_config import cfg

GROUP = "libvirt"

hypervisor_opts = [
    cfg.StrOpt(
        "virt_type",
        default="kvm",
        choices=["kvm", "qemu", "lxc", "parallels"],
        help="""
Kind of guests that libvirt runs.

This version has no libvirt driver. Of this group only cpu_power_management, file_backed_memory
and num_intel_tdx_guests have an effect; the others are read so that an existing configuration
file stays valid.
""",
    ),
    cfg.StrOpt(
        "connection_uri",
        default="",
        help="""
Address of libvirt. Empty: the usual one of virt_type (qemu:///system for kvm and qemu).
""",
    ),
]

cpu_opts = [
    cfg.StrOpt(
        "cpu_mode",
        choices=["host-model", "host-passthrough", "custom", "none"],
        help="""
CPU that guests see. Unset: host-model for kvm and qemu on x86, host-passthrough for kvm on
aarch64, else none.
""",
    ),
    cfg.ListOpt(
        "cpu_models",
        default=[],
        deprecated_name="cpu_model",
        help="Named CPU models that guests may have, with cpu_mode custom.",
    ),
    cfg.ListOpt(
        "cpu_model_extra_flags",
        default=[],
        help="CPU features added to (+flag, flag) or taken from (-flag) the guests' CPU model.",
    ),
    cfg.BoolOpt(
        "cpu_power_management",
        default=False,
        help="""
Idle dedicated CPUs are switched off or slowed down, so that a dedicated CPU counts when it is
present, also while it is offline.
""",
    ),
    cfg.StrOpt(
        "cpu_power_management_strategy",
        default="cpu_state",
        choices=["cpu_state", "governor"],
        help="Whether an idle dedicated CPU is taken offline or its governor is changed.",
    ),
    cfg.StrOpt(
        "cpu_power_governor_low", default="powersave", help="Governor of idle dedicated CPUs."
    ),
    cfg.StrOpt(
        "cpu_power_governor_high",
        default="performance",
        help="Governor of dedicated CPUs in use.",
    ),
]

memory_opts = [
    cfg.IntOpt(
        "file_backed_memory",
        default=0,
        min=0,
        help="""
MiB of file backed memory, reported as MEMORY_MB in place of the host's memory. 0: off. Cannot be
combined with reserved_host_memory_mb.
""",
    ),
    cfg.ListOpt(
        "pmem_namespaces",
        default=[],
        help="""
Persistent memory namespaces by label: 128G:ns0|ns1,262144MB:ns2.
""",
    ),
    cfg.IntOpt(
        "num_intel_tdx_guests",
        min=0,
        help="""
How many guests with Intel TDX the host can run. Unset: what the kernel says.
""",
    ),
]

storage_opts = [
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
    cfg.StrOpt("images_volume_group", help="LVM volume group of the disks, with images_type lvm."),
    cfg.StrOpt(
        "images_rbd_pool", default="rbd", help="RADOS pool of the disks, with images_type rbd."
    ),
    cfg.StrOpt(
        "images_rbd_ceph_conf", default="", help="Ceph's configuration file, with images_type rbd."
    ),
    cfg.StrOpt("rbd_user", help="Ceph user, with images_type rbd."),
]

tpm_opts = [
    cfg.BoolOpt("swtpm_enabled", default=False, help="Guests may have an emulated TPM."),
    cfg.ListOpt(
        "supported_tpm_secret_security",
        default=["user", "host", "deployment"],
        help="Ways in which the secret of an emulated TPM may be kept on this host.",
    ),
]


def opts() -> list[cfg.Opt]:
    """Return every option of group libvirt."""
    return [*hypervisor_opts, *cpu_opts, *memory_opts, *storage_opts, *tpm_opts]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of group libvirt on `conf`."""
    conf.register_opts(opts(), group=GROUP)


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """Return the options by group, for the generator of the sample file."""
    return [(GROUP, opts())]
