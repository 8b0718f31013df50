"""Options of the scheduler: groups scheduler, filter_scheduler and compute_scheduler."""

from __future__ import annotations

import os

from oslo_config import cfg

SCHEDULER = cfg.OptGroup("scheduler", title="What the scheduler asks placement for")
FILTER_SCHEDULER = cfg.OptGroup("filter_scheduler", title="Filters and weighers of hosts")
COMPUTE_SCHEDULER = cfg.OptGroup("compute_scheduler", title="What only this scheduler has")

METRICS = cfg.OptGroup("metrics", title="What agents measure, for filters and weighers")

GROUPS = (SCHEDULER, FILTER_SCHEDULER, COMPUTE_SCHEDULER, METRICS)

DEFAULT_FILTERS = (
    "ComputeFilter",
    "ComputeCapabilitiesFilter",
    "ImagePropertiesFilter",
    "ServerGroupAntiAffinityFilter",
    "ServerGroupAffinityFilter",
)

scheduler_opts = [
    cfg.IntOpt(
        "max_attempts",
        default=3,
        min=1,
        help="""
Hosts that one instance may be tried on: the chosen one and this many less one alternates.
""",
    ),
    cfg.IntOpt(
        "workers",
        default=os.cpu_count() or 1,
        min=0,
        sample_default="<number of CPUs>",
        help="""
Processes of `compute-scheduler serve`. 0 or 1: it serves in its own process.
""",
    ),
    cfg.IntOpt(
        "max_placement_results",
        default=1000,
        min=1,
        help="""
Candidates that placement is asked for at most.

Filters see only these. Raise it when the log says that the limit was reached and no host was
found; that costs memory here and time in placement.
""",
    ),
    cfg.BoolOpt(
        "limit_tenants_to_placement_aggregate",
        default=False,
        help="""
Restrict a project to hosts of the aggregates whose metadata filter_tenant_id* name it.
""",
    ),
    cfg.BoolOpt(
        "placement_aggregate_required_for_tenants",
        default=False,
        help="""
With limit_tenants_to_placement_aggregate: a project that no aggregate names gets no host. Off: it
may use every host.
""",
    ),
    cfg.BoolOpt(
        "query_placement_for_image_type_support",
        default=False,
        help="""
Ask only for hosts that support the image's disk format (traits COMPUTE_IMAGE_TYPE_*).
""",
    ),
    cfg.BoolOpt(
        "query_placement_for_routed_network_aggregates",
        default=False,
        help="""
Keep a request to the hosts of the aggregates of its networks' segments, as requested_networks
names them (segment_aggregates).
""",
    ),
    cfg.BoolOpt(
        "enable_isolated_aggregate_filtering",
        default=False,
        help="""
Keep requests off the hosts of aggregates whose metadata trait:NAME=required ask for a trait that
the request does not require.
""",
    ),
    cfg.BoolOpt(
        "image_metadata_prefilter",
        default=False,
        help="""
Ask only for hosts that support the buses, interfaces, video models, architecture and IOMMU that
the image's properties name.
""",
    ),
]

_MULTIPLIERS = (
    ("ram", 1.0, "free memory"),
    ("cpu", 1.0, "free CPUs"),
    ("disk", 1.0, "free disk"),
    ("io_ops", -1.0, "builds, resizes and migrations under way"),
    ("pci", 1.0, "devices of the kind asked for that stay free"),
    ("soft_affinity", 1.0, "members of the instance's server group"),
    ("soft_anti_affinity", 1.0, "absence of members of the instance's server group"),
    ("build_failure", 1000000.0, "absence of recent build failures"),
    ("num_instances", 0.0, "number of instances"),
    ("hypervisor_version", 1.0, "version of the hypervisor"),
    ("cross_cell_move", 1000000.0, "absence of a change of cell by a move"),
    ("image_props", 0.0, "guests with the same image properties"),
)


def _multiplier_opts() -> list[cfg.Opt]:
    return [
        cfg.FloatOpt(
            f"{name}_weight_multiplier",
            default=default,
            help=f"""
How much the {what} of a host count when hosts are weighed.

Every weight is first scaled to 0..1 over the hosts at hand. Positive: more is better, negative:
less is better, 0: it does not count. An aggregate's metadata of the same name overrides it for
its hosts; of several the smallest counts.
""",
        )
        for name, default, what in _MULTIPLIERS
    ]


filter_opts = [
    cfg.MultiStrOpt(
        "available_filters",
        default=["nova.scheduler.filters.all_filters"],
        help="""
Filters that enabled_filters may name: "nova.scheduler.filters.all_filters" for those that come
with the scheduler, or the full path of a class or of a function returning classes.
""",
    ),
    cfg.ListOpt(
        "enabled_filters",
        default=list(DEFAULT_FILTERS),
        help="""
Filters that every host must pass, in this order. The cheap and sharp ones should come first.
""",
    ),
    cfg.ListOpt(
        "weight_classes",
        default=["nova.scheduler.weights.all_weighers"],
        help="""
Weighers that order the hosts left: "nova.scheduler.weights.all_weighers" for those that come with
the scheduler, or full paths of classes.
""",
    ),
    cfg.BoolOpt(
        "track_instance_changes",
        default=True,
        help="""
Go by the number of instances that agents announce. Off, filters and weighers of instances count
only those that a request itself places.
""",
    ),
    *_multiplier_opts(),
    cfg.FloatOpt(
        "metrics_weight_multiplier",
        default=1.0,
        deprecated_opts=[cfg.DeprecatedOpt("weight_multiplier", group="metrics")],
        help="""
How much the metrics of group metrics count when hosts are weighed; as the other multipliers.
""",
    ),
    cfg.ListOpt(
        "image_props_weight_setting",
        default=[],
        help="""
Image properties that count for image_props_weight_multiplier, each as NAME=RATIO; a negative ratio
spreads guests that have the same value. Empty: all properties, with ratio 1.
""",
    ),
    cfg.IntOpt(
        "host_subset_size",
        default=1,
        min=1,
        help="""
Choose at random among this many of the best hosts. More than 1 keeps several schedulers from
choosing the same host at the same time.
""",
    ),
    cfg.BoolOpt(
        "shuffle_best_same_weighed_hosts",
        default=False,
        help="""
Shuffle the hosts that share the best weight. [compute_scheduler]spread_equal_hosts does as much
for several schedulers, and gives a request the same order each time.
""",
    ),
    cfg.IntOpt(
        "max_io_ops_per_host",
        default=8,
        min=0,
        help="""
Builds, resizes and migrations a host may have under way (IoOpsFilter).
""",
    ),
    cfg.IntOpt(
        "max_instances_per_host",
        default=50,
        min=1,
        help="""
Instances a host may have (NumInstancesFilter).
""",
    ),
    cfg.ListOpt(
        "isolated_images",
        default=[],
        help="""
Ids of images that run on isolated hosts only (IsolatedHostsFilter).
""",
    ),
    cfg.ListOpt(
        "isolated_hosts",
        default=[],
        help="""
Names of hosts that isolated images run on (IsolatedHostsFilter).
""",
    ),
    cfg.BoolOpt(
        "restrict_isolated_hosts_to_isolated_images",
        default=True,
        help="""
Keep other images off the isolated hosts (IsolatedHostsFilter).
""",
    ),
    cfg.BoolOpt(
        "pci_in_placement",
        default=False,
        help="""
Ask placement for the devices that a PCI alias names: one request group per device.

Switch on when every agent reports its PCI devices. Off: PciPassthroughFilter must be enabled, which
uses the devices that agents announce; without it a request with a PCI alias is refused.
""",
    ),
]

compute_scheduler_opts = [
    cfg.StrOpt(
        "aggregate_source",
        help="""
Where host aggregates come from: nova, or the path of a YAML file.

nova: the Compute API, reached as group nova says; what it answers is kept for a minute, and stays
in force while it cannot be reached. A file: a list of {uuid, name, hosts: [names], metadata: {key:
value}}, read at start and on SIGHUP.

Needed for availability zones, tenant isolation and the Aggregate* filters. The uuid must be the one
under which the aggregate is mirrored in placement. Unset: there are no aggregates.
""",
    ),
    cfg.IntOpt(
        "claim_candidates_per_host",
        default=8,
        min=1,
        help="""
Ways to fit on one host that are tried before the next host is. A lost race for one device then
does not cost the host.
""",
    ),
    cfg.StrOpt(
        "journal_path",
        default="$state_path/scheduler-journal",
        help="""
File with what is to be finished or undone when the scheduler dies, or placement fails, in the
middle of a request. `compute-scheduler serve` does so at its start and every 10 s, and so does the
next request of any scheduler with this file.
""",
    ),
    cfg.BoolOpt(
        "spread_equal_hosts",
        default=True,
        help="""
Try hosts of the same weight in an order that each request has of its own, so that several
schedulers do not all claim on the same host first. The same request has the same order on every
scheduler. Off: in the order of placement's answer.
""",
    ),
    cfg.BoolOpt(
        "explain_no_valid_host",
        default=True,
        help="""
Find out what would have made a request fit that no host can take: the closest hosts and the
smallest changes, in the error and in the log. It costs up to 40 questions to placement and 3 s
once per request and 10 s, in one thread at a time. Off: only what the request itself has shown;
`compute-scheduler explain` still finds out.
""",
    ),
    cfg.StrOpt(
        "metrics_bind",
        help="""
ADDRESS:PORT where `compute-scheduler serve` shows metrics to Prometheus, those of all its processes
added up. Unset: none. There is no authentication: bind to loopback or to a management network.
""",
    ),
]


metrics_opts = [
    cfg.ListOpt(
        "weight_setting",
        default=[],
        help="""
Metrics that agents announce and how much each counts: NAME=RATIO (MetricsWeigher, MetricsFilter).
""",
    ),
    cfg.BoolOpt(
        "required",
        default=True,
        help="""
Every host must announce these metrics: enable MetricsFilter with it. A host that does not then
weighs 0; off, it weighs weight_of_unavailable.
""",
    ),
    cfg.FloatOpt(
        "weight_of_unavailable",
        default=-10000.0,
        help="""
Weight of a host that does not announce the metrics, where they are not required.
""",
    ),
]

workaround_opts = [
    cfg.BoolOpt(
        "disable_fallback_pcpu_query",
        default=False,
        help="""
Never look for pinned CPUs among the VCPU of hosts whose agents are too old to report PCPU.

Off, that is done as long as the agents on the message bus do not all announce a version that
reports them; without a message bus it is not done.
""",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the groups of the scheduler on `conf`."""
    for group in GROUPS:
        conf.register_group(group)
    for name, options in list_opts():
        conf.register_opts(options, group=name)


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """Return the options by group, for the generator of the sample file."""
    return [
        (SCHEDULER.name, scheduler_opts),
        (FILTER_SCHEDULER.name, filter_opts),
        (COMPUTE_SCHEDULER.name, compute_scheduler_opts),
        (METRICS.name, metrics_opts),
        ("workarounds", workaround_opts),
    ]
