"""Options of groups DEFAULT, host and upgrade_levels: service, passes, reserves, overcommit."""

from __future__ import annotations

import socket
from typing import Final

from oslo_config import cfg
from oslo_config import types as cfg_types

from compute_agent.programs.declared_options import options

_KINDS: Final = (
    ("cpu", "CPUs", "VCPU", 4.0),
    ("ram", "memory", "MEMORY_MB", 1.0),
    ("disk", "disk", "DISK_GB", 1.0),
)
_RATIOS: Final = "\n\n".join(
    f"""{kind}_allocation_ratio: float 0..
    Overcommit ratio of {what}: {resource_class} can be allocated up to this many times the amount
    of the host.

    If set and not 0.0, it replaces the ratio in placement, even one that an operator set there. If
    unset or 0.0, the ratio in placement is kept, and a provider without a ratio gets
    initial_{kind}_allocation_ratio.

initial_{kind}_allocation_ratio: float 0.. ({initial})
    Overcommit ratio of {what} ({resource_class}) for a provider that has no inventory of it in
    placement yet. Used only if {kind}_allocation_ratio is unset or 0.0."""
    for kind, what, resource_class, initial in _KINDS
)

OPTIONS: Final = {
    "DEFAULT": options(
        f"""
host: text
    Name of this service on the message bus and in logs.

    Must be unique among all agents on the same message bus. It is also the name of the root
    resource provider, unless the driver has a name of its own for the host, as the libvirt driver
    has. Unset: the fully qualified name of this machine.

my_ip: text
    IP address at which other hosts reach this host.

    Announced on the message bus, and used for $my_ip in other options. Unset: the source address of
    the default route, or 127.0.0.1 on a machine without a default route.

state_path: text (/var/lib/compute-agent)
    Directory of files that must survive a restart: the identity of the node (file compute_id), the
    ledger of the providers that this agent created, and the cache of the content of placement.

    Use storage that is kept when the machine is reinstalled in place, and back up compute_id:
    without this file the agent does not start, because it would register the host a second time.

instances_path: text ($state_path/instances)
    Directory of the disks of instances. The size of its file system is reported as DISK_GB, unless
    [libvirt]images_type is lvm or rbd.

default_availability_zone: text (nova)
    Availability zone of hosts that are in no aggregate with a zone, for compute-scheduler.

compute_driver: text (host.HostDriver)
    Driver that describes this machine.

    host.HostDriver (this machine; needs only Linux), libvirt.LibvirtDriver (the host of a
    hypervisor, with its guests), fake.FakeDriver (in memory, for tests), the full path of a class,
    or the name of a class in the entry point group compute_agent.drivers.

report_interval: int 1.. (10)
    Seconds between two announcements of the state of this agent on the message bus.

service_down_time: int 1.. (60)
    Seconds without an announcement after which the scheduler considers an agent down.

    Must be larger than report_interval. Use several times report_interval to tolerate lost
    messages.

transport_url: text () secret
    URL of the message bus, for example rabbit://user:password@broker:5672//. Empty: no message bus.
    The agent then reports to placement, but schedulers and operators cannot reach it.

control_exchange: text (compute-agent)
    Exchange of the message bus that contains the topics of agents and schedulers.

periodic_enable: bool (true)
    Run passes periodically. If false, the agent runs a pass at its start, on SIGHUP, on request,
    and on events of the hardware, of the hypervisor and, with [compute_agent]follow_changes, of
    placement. It does not notice other changes.

periodic_fuzzy_delay: int 0.. (60)
    Maximum random delay in seconds before the first pass after a start, and before the first pass
    after an outage of placement (there it is never longer than the outage).

    It spreads the requests of agents that were restarted together, or waited for placement
    together. 0: no delay.

enable_new_services: bool (true)
    Whether a host accepts new instances when its agent starts for the first time.

    If false, a new host has the trait COMPUTE_STATUS_DISABLED until an operator enables it.

update_resources_interval: int (0)
    Seconds between two periodic passes. A pass compares this machine with placement. 0: 60 seconds.
    Negative: no periodic passes.

    A pass without changes costs one request.

reserved_host_memory_mb: int 0.. (512)
    Memory in MiB that is reserved for the host: the reserved amount of MEMORY_MB.

    Reserve what the host itself needs, plus the number of guests times what each takes beyond its
    memory, for example 2048 + 20 * 200 = 6048. compute-agent doctor shows what guests take.

    If NUMA cells are reported, each cell reserves a part in proportion to its memory, unless
    [compute]reserved_host_memory_mb_per_numa is set.

reserved_host_disk_mb: int 0.. (0)
    Disk in MiB that is reserved for the host, rounded up to whole GiB: the reserved amount of
    DISK_GB.

    Reserve what the host itself writes to the disk of the guests, plus the number of guests times
    what each takes beyond its disk (logs, firmware variables, configuration drives).

reserved_host_cpus: int 0.. (0)
    Number of CPUs that are reserved for the host: the reserved amount of VCPU.

    Reserve what the host itself needs, plus the number of guests times what each takes beyond its
    vCPUs (emulator and I/O threads), divided by the overcommit ratio of VCPU.

    Cannot be combined with [compute]cpu_shared_set or [compute]cpu_dedicated_set: with these, the
    CPUs in neither set are left to the host.

reserved_huge_pages: values
    Huge pages of each NUMA cell that are reserved for software on the host; guests do not get them.

    For example node:0,size:2048,count:64 and node:1,size:1GB,count:1. The size is in KiB, or has a
    unit. May be given several times.

{_RATIOS}

vcpu_pin_set: text
    Former name of [compute]cpu_shared_set: host CPUs for guests, for example 4-12,^8,15.
""",
        host={"sample_default": "<fully qualified name of this machine>"},
        my_ip={"sample_default": "<source address of the default route>"},
        reserved_huge_pages={"item_type": cfg_types.Dict()},
        vcpu_pin_set={
            "deprecated_for_removal": True,
            "deprecated_reason": "Use [compute]cpu_shared_set and [compute]cpu_dedicated_set.",
        },
    ),
    "host": options("""
sysfs_root: text (/sys)
    Directory that is read as /sys. Set it to a directory of a captured machine to report that
    machine.

procfs_root: text (/proc)
    Directory that is read as /proc. Set it to a directory of a captured machine to report that
    machine.
"""),
    "upgrade_levels": options("""
compute: text
    Maximum version of calls to agents, such as 1.0. Set it while some of them are older than the
    caller. Unset or auto: no limit. Names of OpenStack releases are accepted and set no limit.

scheduler: text
    Maximum version of calls to schedulers, such as 4.5. Set it while some of them are older than
    the caller. Unset or auto: no limit. Names of OpenStack releases are accepted and set no limit.
"""),
}


def set_machine_defaults(conf: cfg.ConfigOpts) -> None:
    """Set the defaults of `host` and `my_ip` from this machine.

    Separate from `register_opts`, as resolving a name may use the network.
    """
    if conf.DEFAULT.host is None:
        conf.set_default("host", socket.getfqdn(), group="DEFAULT")
    if conf.my_ip is None:
        conf.set_default("my_ip", _default_route_source())


def _default_route_source() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # a UDP connect sends nothing: it only asks the kernel for the route. The address is
            # from a block reserved for documentation
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        address: str = probe.getsockname()[0]
        return address
