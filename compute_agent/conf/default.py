"""Options of group DEFAULT: the service, its passes, reserves and overcommit of the host."""

from __future__ import annotations

import socket

from oslo_config import cfg
from oslo_config import types as cfg_types

host_opt = cfg.StrOpt(
    "host",
    sample_default="<fully qualified name of this machine>",
    help="""
Name of this service on the message bus and in logs.

Must be unique among all agents that share a message bus. It is also the name of the root resource
provider where the driver has no name of its own for the host, as a hypervisor has. Unset: the fully
qualified name of this machine.
""",
)
"""Read as ``conf.DEFAULT.host``, since a group of the same name hides it elsewhere."""

service_opts = [
    cfg.StrOpt(
        "my_ip",
        sample_default="<source address of the default route>",
        help="""
IP address under which other hosts reach this one.

Unset: the source address of the default route, or 127.0.0.1 on a machine that has none. Read from
an existing configuration file so that it stays valid, and for $my_ip in other options.
""",
    ),
    cfg.StrOpt(
        "state_path",
        default="/var/lib/compute-agent",
        help="""
Directory for what must survive a restart: the node's identity (file compute_id), the ledger of
providers this agent created, the cache of what placement holds.

Put it on storage that is kept when the machine is reinstalled in place, and back up compute_id:
without it the agent refuses to start rather than register the host a second time.
""",
    ),
    cfg.StrOpt(
        "instances_path",
        default="$state_path/instances",
        help="""
Directory of the instances' disks. The size of the file system behind it is reported as DISK_GB.
""",
    ),
    cfg.StrOpt(
        "compute_driver",
        default="host.HostDriver",
        help="""
Driver that describes this machine.

host.HostDriver (this machine; needs nothing but Linux), libvirt.LibvirtDriver (the host of a
hypervisor, with its guests), fake.FakeDriver (in memory, for tests), the full path of a class, or
the name of one under the entry point group compute_agent.drivers.
""",
    ),
    cfg.IntOpt(
        "report_interval",
        default=10,
        min=1,
        help="""
Seconds between two announcements of this agent's state on the message bus.
""",
    ),
    cfg.IntOpt(
        "service_down_time",
        default=60,
        min=1,
        help="""
Seconds after which the scheduler takes an agent that has not announced itself for down.

Must be larger than report_interval; several times as large to survive a lost message.
""",
    ),
]

bus_opts = [
    cfg.StrOpt(
        "transport_url",
        default="",
        secret=True,
        help="""
Message bus, for example rabbit://user:password@broker:5672//. Empty: no bus. Reporting works
without one; schedulers and operators then cannot reach this agent.
""",
    ),
    cfg.StrOpt(
        "control_exchange",
        default="compute-agent",
        help="""
Exchange of the message bus in which the topics of agents and schedulers are.
""",
    ),
]

periodic_opts = [
    cfg.BoolOpt(
        "periodic_enable",
        default=True,
        help="""
Run periodic passes. When off the agent reports at start, on SIGHUP and when it is asked to, and
otherwise never notices a change.
""",
    ),
    cfg.IntOpt(
        "periodic_fuzzy_delay",
        default=60,
        min=0,
        help="""
Upper bound in seconds of the random delay before the first pass after a start, and before the
first pass after an outage of placement (never longer than the outage was).

It keeps a fleet that is restarted together, or has waited together, from asking placement together.
0: no delay.
""",
    ),
    cfg.BoolOpt(
        "enable_new_services",
        default=True,
        help="""
Whether new instances are allowed on a host when its agent starts for the first time.

When off, a new host carries the trait COMPUTE_STATUS_DISABLED until an operator enables it.
""",
    ),
    cfg.IntOpt(
        "update_resources_interval",
        default=0,
        help="""
Seconds between two passes that compare this machine with placement. 0: 60. Below 0: never.

A pass in which nothing changed costs one request.
""",
    ),
]

reserve_opts = [
    cfg.IntOpt(
        "reserved_host_memory_mb",
        default=512,
        min=0,
        help="""
Memory in MiB kept for the host itself: the reserved amount of MEMORY_MB.

With NUMA cells reported, it is taken from them in proportion to their memory unless
[compute]reserved_host_memory_mb_per_numa is given.
""",
    ),
    cfg.IntOpt(
        "reserved_host_disk_mb",
        default=0,
        min=0,
        help="""
Disk in MiB kept for the host itself, rounded up to whole GiB: the reserved amount of DISK_GB.
""",
    ),
    cfg.IntOpt(
        "reserved_host_cpus",
        default=0,
        min=0,
        help="""
CPUs kept for the host itself: the reserved amount of VCPU.

Cannot be combined with [compute]cpu_shared_set or [compute]cpu_dedicated_set: CPUs left out of
both sets are the host's.
""",
    ),
    cfg.MultiOpt(
        "reserved_huge_pages",
        item_type=cfg_types.Dict(),
        help="""
Huge pages kept for software on the host that instances do not see, per NUMA cell.

Example: node:0,size:2048,count:64 and node:1,size:1GB,count:1. Size in KiB, or with a unit.
May be given several times.
""",
    ),
]

_RATIO_HELP = """
Overcommit of {what}: how many times its amount ({rc}) may be allocated.

Set (and not 0.0): wins over everything, also over a ratio set in placement by hand. Unset: the
ratio that placement has is kept, and a provider that has none yet gets {initial}.
"""
_INITIAL_RATIO_HELP = """
Overcommit of {what} ({rc}) for a provider that has no inventory of it in placement yet. Looked at
only while {option} is unset.
"""


def _ratio_opts() -> list[cfg.Opt]:
    opts = []
    kinds = (
        ("cpu", "CPUs", "VCPU", 4.0),
        ("ram", "memory", "MEMORY_MB", 1.0),
        ("disk", "disk", "DISK_GB", 1.0),
    )
    for kind, what, resource_class, initial in kinds:
        option = f"{kind}_allocation_ratio"
        opts.append(
            cfg.FloatOpt(
                option,
                min=0.0,
                help=_RATIO_HELP.format(what=what, rc=resource_class, initial=f"initial_{option}"),
            )
        )
        opts.append(
            cfg.FloatOpt(
                f"initial_{option}",
                default=initial,
                min=0.0,
                help=_INITIAL_RATIO_HELP.format(what=what, rc=resource_class, option=option),
            )
        )
    return opts


cpu_opts = [
    cfg.StrOpt(
        "vcpu_pin_set",
        deprecated_for_removal=True,
        deprecated_reason="Use [compute]cpu_shared_set and [compute]cpu_dedicated_set.",
        help="""
CPUs that instances may use, as a set such as 4-12,^8,15.
""",
    ),
]


def opts() -> list[cfg.Opt]:
    """Return every option of group DEFAULT."""
    return [
        host_opt,
        *service_opts,
        *bus_opts,
        *periodic_opts,
        *reserve_opts,
        *_ratio_opts(),
        *cpu_opts,
    ]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of group DEFAULT on `conf`."""
    conf.register_opt(host_opt, group="DEFAULT")
    conf.register_opts([opt for opt in opts() if opt is not host_opt])


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """Return the options by group, for the generator of the sample file."""
    return [("DEFAULT", opts())]


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
