"""Options of the scheduler: groups scheduler, filter_scheduler and compute_scheduler."""

from __future__ import annotations

import os
from typing import Final

from compute_agent.programs.declared_options import options

DEFAULT_FILTERS = (
    "ComputeFilter",
    "ComputeCapabilitiesFilter",
    "ImagePropertiesFilter",
    "ServerGroupAntiAffinityFilter",
    "ServerGroupAffinityFilter",
)

_SCHEDULER: Final = options(
    """
max_attempts: int 1.. (3)
    Maximum number of hosts on which one instance may be tried. The scheduler returns the chosen
    host and up to this many minus one alternates.

workers: int 0..
    Number of processes of `compute-scheduler serve`. 0 or 1: a single process without workers.

max_placement_results: int 1.. (1000)
    Maximum number of candidates that the scheduler requests from placement.

    Filters see only these candidates. Raise it if the log reports that the limit was reached and no
    host was found. More candidates need more memory here and more time in placement.

limit_tenants_to_placement_aggregate: bool (false)
    Restrict a project to the hosts of the aggregates whose metadata filter_tenant_id* contains it.

placement_aggregate_required_for_tenants: bool (false)
    With limit_tenants_to_placement_aggregate, refuse a project that no aggregate contains. If
    false, such a project may use every host.

query_placement_for_image_type_support: bool (false)
    Request only hosts that support the disk format of the image (traits COMPUTE_IMAGE_TYPE_*).

query_placement_for_routed_network_aggregates: bool (false)
    Restrict a request to the hosts in the aggregates of the segments of its networks, which
    requested_networks contains (segment_aggregates).

enable_isolated_aggregate_filtering: bool (false)
    Exclude hosts in an aggregate whose metadata has trait:NAME=required for a trait that the
    request does not require.

image_metadata_prefilter: bool (false)
    Request only hosts that support the buses, network interfaces, video models, architecture and
    IOMMU that the properties of the image name.
""",
    workers={"default": os.cpu_count() or 1, "sample_default": "<number of CPUs>"},
)

_MULTIPLIERS = (
    ("ram", 1.0, "free memory"),
    ("cpu", 1.0, "free CPUs"),
    ("disk", 1.0, "free disk"),
    ("io_ops", -1.0, "number of builds, resizes and migrations in progress"),
    (
        "pci",
        1.0,
        "number of free devices of the requested kinds; for a request without devices, minus the "
        "number of all free devices",
    ),
    ("soft_affinity", 1.0, "number of members of the server group of the instance"),
    ("soft_anti_affinity", 1.0, "minus the number of members of the server group of the instance"),
    ("build_failure", 1000000.0, "minus the number of recent failed builds"),
    ("num_instances", 0.0, "number of instances"),
    ("hypervisor_version", 1.0, "version of the hypervisor"),
    (
        "leaves_whole",
        0.25,
        "minus the number of whole groups of linked devices, of kinds of free devices on the NUMA "
        "cells of the guest, and where agents announce cells of whole cores, that it would break "
        "or use up without need",
    ),
    ("cross_cell_move", 1000000.0, "0 in the cell of an instance that moves, -1 in another cell"),
)


_FILTER_SCHEDULER: Final = [
    *options(
        """
available_filters: texts (nova.scheduler.filters.all_filters)
    Filters that enabled_filters may name: "nova.scheduler.filters.all_filters" for the filters of
    this scheduler, or the full path of a class or of a function that returns classes.

enabled_filters: list
    Filters that every host must pass, in this order. Put cheap filters that reject many hosts
    first.

weight_classes: list (nova.scheduler.weights.all_weighers)
    Weighers that order the hosts that pass the filters: "nova.scheduler.weights.all_weighers" for
    the weighers of this scheduler, or the full paths of classes.

track_instance_changes: bool (true)
    Use the number of instances that agents announce. If false, filters and weighers count only the
    instances that the same request places.
""",
        enabled_filters={"default": list(DEFAULT_FILTERS)},
    ),
    *options(
        "\n\n".join(
            f"""{name}_weight_multiplier: float ({default})
    Multiplier for this value in the weight of a host: {what}.

    The value is first scaled to 0..1 over all hosts of a request. Positive: more is better.
    Negative: less is better. 0: the value does not count. Metadata of an aggregate with the name of
    this option overrides it for the hosts of the aggregate; of several values the smallest is used.
"""
            for name, default, what in _MULTIPLIERS
        )
    ),
    *options("""
host_subset_size: int 1.. (1)
    Number of best hosts among which the scheduler chooses at random. A value above 1 prevents
    several schedulers from choosing the same host at the same time.

shuffle_best_same_weighed_hosts: bool (false)
    Shuffle the hosts that have the best weight, if several have it. For several schedulers, prefer
    [compute_scheduler]spread_equal_hosts, which gives a request the same order each time.

max_io_ops_per_host: int 0.. (8)
    Maximum number of builds, resizes and migrations in progress on a host (IoOpsFilter).

max_instances_per_host: int 1.. (50)
    Maximum number of instances on a host (NumInstancesFilter).

isolated_images: list ()
    IDs of images that run only on isolated hosts (IsolatedHostsFilter).

isolated_hosts: list ()
    Names of the hosts for isolated images (IsolatedHostsFilter).

restrict_isolated_hosts_to_isolated_images: bool (true)
    Allow only isolated images on isolated hosts (IsolatedHostsFilter).

image_properties_default_architecture: text
    Architecture of images without the property hw_architecture (ImagePropertiesFilter), such as
    x86_64.

aggregate_image_properties_isolation_namespace: text
    Beginning of the image properties that AggregateImagePropertiesIsolation compares. Unset: all.

aggregate_image_properties_isolation_separator: text (.)
    Text between aggregate_image_properties_isolation_namespace and the rest of the name.

pci_in_placement: bool (false)
    Request the devices of a PCI alias from placement, with one request group for each device.

    Enable it when all agents report their PCI devices. If false, a request with a PCI alias is
    refused. PciPassthroughFilter keeps the devices near the NUMA nodes of the guest.
"""),
]

_COMPUTE_SCHEDULER: Final = options("""
aggregate_source: text
    Source of host aggregates: nova, or the path of a YAML file.

    nova: the Compute API, with the access of the group nova. Its answer is used for a minute, and
    longer while the Compute API cannot be reached. A file: a list of {uuid, name, hosts: [names],
    metadata: {key: value}}, read at start and on SIGHUP.

    Needed for availability zones, tenant isolation and the Aggregate* filters. The uuid must be the
    UUID of the aggregate in placement. Unset: there are no aggregates.

claim_candidates_per_host: int 1.. (8)
    Maximum number of candidates of one host that are tried before the next host. A host is then not
    lost because another request was first to claim one of its devices.

journal_path: text ($state_path/scheduler-journal)
    File with the work to finish or undo if the scheduler ends, or placement fails, during a
    request. `compute-scheduler serve` does this work at its start and every 10 s; so does the next
    request of any scheduler that uses this file.

spread_equal_hosts: bool (true)
    Try hosts of the same weight in an order that depends on the request, so that several schedulers
    do not all claim on the same host first. The same request has the same order on every scheduler.
    If false, the order is that of the answer of placement.

explain_no_valid_host: bool (true)
    Explain a request that fits on no host: the error and the log contain what placement-server
    names, the smallest changes with which it would fit and the closest providers. This costs one
    request to placement for each query without candidates, at most 4, once in 10 s for equal
    queries and for one request at a time. If false, only the results of the search itself are
    shown; `compute-scheduler explain` still explains.

metrics_bind: text
    ADDRESS:PORT on which `compute-scheduler serve` serves metrics to Prometheus, as sums over all
    its processes. Unset: no metrics. There is no authentication: use a loopback address or a
    management network.
""")

OPTIONS: Final = {
    "scheduler": _SCHEDULER,
    "filter_scheduler": _FILTER_SCHEDULER,
    "compute_scheduler": _COMPUTE_SCHEDULER,
}
