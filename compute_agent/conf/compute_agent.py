"""Options of group compute_agent, which only this agent has."""

from __future__ import annotations

from oslo_config import cfg
from oslo_config import types as cfg_types

GROUP = "compute_agent"

_UUID = cfg_types.String(
    regex=r"^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$", max_length=36
)

placement_opts = [
    cfg.IntOpt(
        "startup_placement_timeout",
        default=0,
        min=0,
        help="""
Seconds that the agent waits at start for a placement that cannot be reached before it ends with
status 3. 0: it waits for ever, which lets hosts and placement be started in any order.
""",
    ),
    cfg.IntOpt(
        "placement_connections",
        default=4,
        min=1,
        help="""
Requests sent to placement at the same time at most, when siblings in the tree are read or
written. More shortens the first report of a large host and costs placement that many workers.
""",
    ),
    cfg.StrOpt(
        "use_placement_extensions",
        default="auto",
        choices=[
            ("auto", "use what the server announces"),
            ("never", "speak the plain Placement API only"),
        ],
        help="""
Whether to use extensions of the Placement API where the server announces them. The scheduler then
asks more precisely: for aggregates of the host itself, and for NUMA nodes of a guest on different
cells, so that its limit is not spent on candidates that it would drop. The agent and the offline
migration read and replace the tree of a host with one request each.
""",
    ),
    cfg.BoolOpt(
        "follow_changes",
        default=False,
        help="""
Whether to follow placement's feed of changes, where it offers one (`placement-ext 1.1`). A pass
then runs within a second after another writer changed providers, inventories, traits or aggregates
of this host, and the period only checks, so that it may be longer. Each agent that follows keeps
one request waiting at placement: `[placement_server]max_watchers` times its workers is the most
that it lets wait.
""",
    ),
    cfg.StrOpt(
        "bulk_inventory",
        default="auto",
        choices=[
            ("auto", "one atomic request where many inventories change and it is permitted"),
            ("never", "one request per provider"),
        ],
        help="""
Whether many changed inventories may be written by one request. Needs permission to reshape;
without it the agent falls back to one request per provider by itself.
""",
    ),
]

identity_opts = [
    cfg.StrOpt(
        "on_hostname_change",
        default="rename",
        choices=[
            ("rename", "rename the resource providers of this node"),
            ("refuse", "do not start"),
        ],
        help="""
What to do at start when the host's name is no longer the name of its root provider.
""",
    ),
]

audit_opts = [
    cfg.IntOpt(
        "audit_interval",
        default=3600,
        min=0,
        mutable=True,
        help="""
Seconds between two comparisons of the instances on this host with the allocations on it.
0: never. Costs one request per provider that has inventory, and one per consumer that does not
run here.
""",
    ),
    cfg.IntOpt(
        "audit_grace",
        default=300,
        min=0,
        mutable=True,
        help="""
Age in seconds below which an allocation without an instance is not suspected: the instance may
be on its way here. Raise it where spawning or migrating takes longer.
""",
    ),
    cfg.BoolOpt(
        "heal_orphans",
        default=False,
        mutable=True,
        help="""
Delete allocations on this host whose instance does not exist any more, as the instance source
says, which is asked when an audit suspects one. Off: they are reported only.
""",
    ),
    cfg.BoolOpt(
        "heal_missing",
        default=False,
        mutable=True,
        help="""
Create the allocations of instances that run here and have none, from what the instance source
says of their flavors; that must be nova or file, since agents do not know flavors. Off: they are
reported only.
""",
    ),
    cfg.StrOpt(
        "instance_source",
        default="agents",
        choices=[
            ("agents", "what all agents list"),
            ("nova", "the Compute API, with an administrator's credential"),
            ("file", "a file of instances"),
        ],
        help="""
Who is asked by `compute-manage placement audit`, and by the agent with heal_orphans, whether an
instance exists at all; and by `heal_allocations`, and by the agent with heal_missing, what it
needs, which agents do not know. With file, the file is named by --instances or instance_file.
With nova, groups nova and neutron say how these services are reached.
""",
    ),
    cfg.StrOpt(
        "instance_file",
        help="""
The file of all instances and unfinished migrations of the cloud where instance_source is file:
one uuid or one JSON object per line, replaced as a whole when it changes. The agent takes nothing
for gone that was written to placement after the file, or less than audit_grace before.
""",
    ),
]

claim_opts = [
    cfg.StrOpt(
        "legacy_self_claim",
        default="never",
        choices=[
            ("auto", "allocate on this host when the scheduler did not"),
            ("never", "refuse an instance that has no allocation"),
        ],
        help="""
What to do with an instance for which the scheduler allocated nothing. auto is for the time of a
rolling upgrade: the host allocates what the caller names, or on its root provider what the flavor
says; and the scheduler claims only once every agent announces that it expects that.
""",
    ),
]

host_opts = [
    cfg.IntOpt(
        "call_timeout",
        default=60,
        min=1,
        help="""
Seconds that one call to libvirt or to NVML, or one look at a file of the kernel or at the disk of
the guests, may take. After that it is given up: the pass fails and names the call, `compute-agent
status` and the metrics show it, and nothing more is asked of that source until the call returns.
""",
    ),
    cfg.BoolOpt(
        "allow_cpu_set_change",
        default=False,
        help="""
Start even if a CPU that was taken out of the CPU sets is still held by an instance.
""",
    ),
    cfg.Opt(
        "shared_disk_provider",
        type=_UUID,
        help="""
UUID of the resource provider that holds the DISK_GB of a storage pool shared by several hosts.
It is made by an operator, with trait MISC_SHARES_VIA_AGGREGATE and in an aggregate of the hosts'
root providers; a host connected to such a provider reports no DISK_GB of its own. Set: this host
keeps the provider's total equal to the store of [libvirt]images_type. It writes only when
they differ by more than 1 %, after a random delay, so that one host writes for all.
""",
    ),
]

surface_opts = [
    cfg.StrOpt(
        "status_socket",
        default="$state_path/status.sock",
        help="""
UNIX socket where the running agent answers `compute-agent status` and `compute-agent report`.
Empty: none. A socket's path may have at most 107 bytes.
""",
    ),
    cfg.StrOpt(
        "metrics_bind",
        help="""
ADDRESS:PORT where metrics are served to Prometheus. Unset: none. There is no authentication:
bind to loopback or to a management network.
""",
    ),
]


def opts() -> list[cfg.Opt]:
    """Return every option of group compute_agent."""
    return [
        *placement_opts,
        *identity_opts,
        *audit_opts,
        *claim_opts,
        *host_opts,
        *surface_opts,
    ]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of group compute_agent on `conf`."""
    # a new group each time: a shared one leaks overrides between configurations
    conf.register_group(cfg.OptGroup(GROUP, title="What is particular to this agent"))
    conf.register_opts(opts(), group=GROUP)


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """Return the options by group, for the generator of the sample file."""
    return [(GROUP, opts())]
