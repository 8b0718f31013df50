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
    cfg.StrOpt(
        "cpu_mode",
        choices=["host-model", "host-passthrough", "custom", "none"],
        help="""
CPU that guests of virt_type kvm and qemu get; the traits HW_CPU_* are its features. host-model:
libvirt's model nearest to the CPU of the host. host-passthrough: the CPU of the host. custom: one
of cpu_models. none: the emulator's default. Unset: host-model on x86, host-passthrough on aarch64
with kvm, else none. Guests with Intel TDX need host-passthrough.
""",
    ),
    cfg.ListOpt(
        "cpu_models",
        default=[],
        deprecated_name="cpu_model",
        help="""
Names of CPU models for cpu_mode = custom, as `virsh cpu-models ARCH` lists them, in any case. The
traits are the features of all of them; one that this host cannot run is warned of.
""",
    ),
    cfg.ListOpt(
        "cpu_model_extra_flags",
        default=[],
        help="""
Features that guests get in addition to those of their CPU model (`flag` or `+flag`), or do not get
(`-flag`), by libvirt's names, as pdpe1gb, +md-clear, -vmx. Without effect on cpu_mode = none.
""",
    ),
    cfg.BoolOpt(
        "swtpm_enabled",
        default=False,
        help="""
Guests can have an emulated TPM: its models and versions that libvirt finds on this host are
reported as traits COMPUTE_SECURITY_TPM_*. Needs the packages swtpm and swtpm-tools.
""",
    ),
    cfg.ListOpt(
        "supported_tpm_secret_security",
        default=["user", "host", "deployment"],
        item_type=cfg.types.String(choices=["user", "host", "deployment"]),
        help="""
Ways in which the secrets of emulated TPMs may be kept on this host (user, host, deployment),
reported as traits COMPUTE_SECURITY_TPM_SECRET_SECURITY_* where swtpm_enabled is set.
""",
    ),
    cfg.BoolOpt(
        "cpu_power_management",
        default=False,
        help="""
Idle dedicated CPUs are switched off (or slowed down: cpu_power_management_strategy) by the software
that starts guests, so that a dedicated CPU counts when it is present, also while it is offline.
""",
    ),
    cfg.StrOpt(
        "cpu_power_management_strategy",
        default="cpu_state",
        choices=["cpu_state", "governor"],
        help="""
With cpu_state an idle dedicated CPU is switched off, so that an offline one counts. With governor
it is only slowed down, so that an offline one is missing, as it is without cpu_power_management.
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
    cfg.ListOpt(
        "pmem_namespaces",
        default=[],
        help="""
Namespaces of persistent memory for guests, by the label that flavors ask for: LABEL:NAME|NAME...,
for example 128G:ns0|ns1,262144MB:ns2. A label is the resource class CUSTOM_PMEM_NAMESPACE_<LABEL>.
The program ndctl lists them; they are of mode devdax.
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
Where the guests' disks are kept, whose size is DISK_GB: lvm is the volume group
images_volume_group, measured by vgs; rbd the pool images_rbd_pool of Ceph, measured by ceph; any
other the file system below [DEFAULT]instances_path. Where it cannot be measured no DISK_GB is
reported, with a warning.
""",
    ),
    cfg.StrOpt(
        "images_volume_group",
        help="""
Volume group of the guests' disks; needed with images_type lvm.
""",
    ),
    cfg.StrOpt(
        "images_rbd_pool",
        default="rbd",
        help="""
Pool of Ceph that holds the guests' disks, with images_type rbd.
""",
    ),
    cfg.StrOpt(
        "images_rbd_ceph_conf",
        default="",
        help="""
Path of the configuration file of Ceph. Empty: where the program ceph looks by itself.
""",
    ),
    cfg.StrOpt(
        "rbd_user",
        help="""
Client of Ceph that asks for the size of the pool, without its type: nova for client.nova. Unset:
what the program ceph takes by itself.
""",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of group libvirt on `conf`."""
    conf.register_opts(OPTS, group=GROUP)


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """Return the options by group, for the generator of the sample file."""
    return [(GROUP, OPTS)]
