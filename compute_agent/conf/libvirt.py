"""Options of group libvirt: of the libvirt driver, and of every driver with a layout."""

from __future__ import annotations

from typing import Final

from oslo_config import types as cfg_types

from compute_agent.programs.declared_options import options

OPTIONS: Final = {
    "libvirt": options(
        """
virt_type: text {kvm,qemu,lxc,parallels} (kvm)
    Type of the guests on this host. It determines what guests can have and, if connection_uri is
    empty, the hypervisor to connect to: qemu:///system for kvm and qemu (emulated CPUs), lxc:///,
    parallels:///system. Only the libvirt driver reads it.

connection_uri: text ()
    URI of the hypervisor that the libvirt driver describes, for example qemu:///system or
    qemu+tls://host/system. Empty: the hypervisor of virt_type on this machine. If it names another
    machine or libvirt's test driver, only libvirt describes the host, and no files below
    [host]sysfs_root are read.

cpu_mode: text {host-model,host-passthrough,custom,none}
    CPU of guests of virt_type kvm and qemu. Its features are reported as traits HW_CPU_*.
    host-model: the model of libvirt that is nearest to the CPU of the host. host-passthrough: the
    CPU of the host. custom: one of cpu_models. none: the default of the emulator. Unset: host-model
    on x86, host-passthrough on aarch64 with kvm, else none. Guests with Intel TDX need
    host-passthrough.

cpu_models: list ()
    Names of CPU models for cpu_mode = custom, as `virsh cpu-models ARCH` lists them, in upper or
    lower case. The traits are the features of all these models. The agent logs a warning for a
    model that this host cannot run.

cpu_model_extra_flags: list ()
    Features to add to the CPU model of guests (`flag` or `+flag`), or to remove from it (`-flag`),
    with the names of libvirt, for example pdpe1gb, +md-clear, -vmx. No effect with cpu_mode = none.

swtpm_enabled: bool (false)
    Whether guests can have an emulated TPM. The models and versions that libvirt finds on this host
    are reported as traits COMPUTE_SECURITY_TPM_*. Needs the packages swtpm and swtpm-tools.

supported_tpm_secret_security: list (user,host,deployment)
    Ways to keep the secrets of emulated TPMs on this host (user, host, deployment). Reported as
    traits COMPUTE_SECURITY_TPM_SECRET_SECURITY_* if swtpm_enabled is set.

cpu_power_management: bool (false)
    Set it if the software that starts guests switches idle dedicated CPUs off, or slows them down
    (see cpu_power_management_strategy). A dedicated CPU then counts if it is present, even while it
    is offline.

cpu_power_management_strategy: text {cpu_state,governor} (cpu_state)
    What happens to an idle dedicated CPU. With cpu_state it is switched off, so an offline CPU
    counts. With governor it is only slowed down, so an offline CPU is missing, as without
    cpu_power_management.

file_backed_memory: int 0.. (0)
    File-backed memory in MiB, reported as MEMORY_MB instead of the memory of the host. 0: off.
    Requires [DEFAULT]reserved_host_memory_mb = 0.

pmem_namespaces: list ()
    Namespaces of persistent memory for guests, as LABEL:NAME|NAME..., for example
    128G:ns0|ns1,262144MB:ns2. Flavors request a label; it is reported as the resource class
    CUSTOM_PMEM_NAMESPACE_<LABEL>. The namespaces must have mode devdax; the program ndctl lists
    them.

num_intel_tdx_guests: int 0..
    Number of guests with Intel TDX that the host can run. Unset: the number that the kernel
    reports.

images_type: text {raw,flat,qcow2,lvm,rbd,ploop,default} (default)
    Store of the disks of guests. Its size is reported as DISK_GB. lvm: the volume group
    images_volume_group, measured with vgs. rbd: the Ceph pool images_rbd_pool, measured with ceph.
    All others: the file system of [DEFAULT]instances_path. If the size cannot be measured, the
    agent logs a warning and reports no DISK_GB.

images_volume_group: text
    Volume group with the disks of guests. Required if images_type is lvm.

images_rbd_pool: text (rbd)
    Ceph pool with the disks of guests, if images_type is rbd.

images_rbd_ceph_conf: text ()
    Path of the configuration file of Ceph. Empty: the default of the program ceph.

rbd_user: text
    Ceph client that reads the size of the pool, without its type: nova for client.nova. Unset: the
    default of the program ceph.
""",
        cpu_models={"deprecated_name": "cpu_model"},
        supported_tpm_secret_security={
            "item_type": cfg_types.String(choices=["user", "host", "deployment"])
        },
    )
}
