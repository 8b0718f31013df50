"""Options of groups compute and workarounds: CPU sets, layout, provider config files."""

from __future__ import annotations

import os
from pathlib import Path

from oslo_config import cfg
from oslo_config import types as cfg_types

PROVIDER_CONFIG_LOCATION = "/etc/compute-agent/provider_config/"
NOVA_PROVIDER_CONFIG_LOCATION = "/etc/nova/provider_config/"

cpu_opts = [
    cfg.StrOpt(
        "cpu_shared_set",
        help="""
Host CPUs on which unpinned guests (class VCPU) float, for example 4-12,^8,15.

Unset, with cpu_dedicated_set unset too: all CPUs that are online. Unset, with cpu_dedicated_set
set: none. CPUs in neither set are left to the host.
""",
    ),
    cfg.StrOpt(
        "cpu_dedicated_set",
        help="""
Host CPUs that are given to one pinned guest each (class PCPU), for example 2-15,^4.

Must not overlap cpu_shared_set. A CPU named here that is not online is an error.
""",
    ),
]

layout_opts = [
    cfg.BoolOpt(
        "enable_numa_reporting_to_placement",
        default=False,
        help="""
Report every NUMA cell as a provider of its own that holds CPUs, memory and huge pages, with GPUs
and NICs below the cell they are attached to.

Changing it moves inventory that may be in use: the allocations are moved along, at the start of
the agent only. Look at what would happen with `compute-agent plan` first.
""",
    ),
    cfg.Opt(
        "reserved_host_memory_mb_per_numa",
        type=cfg_types.Dict(cfg_types.Integer(min=0)),
        default={},
        help="""
Memory in MiB kept for the host itself on each NUMA cell: 0:2048,1:512.

With NUMA cells reported it takes the place of [DEFAULT]reserved_host_memory_mb; cells not named
reserve nothing.
""",
    ),
]

provider_opts = [
    cfg.StrOpt(
        "provider_config_location",
        default=PROVIDER_CONFIG_LOCATION,
        help=f"""
Directory of provider config files (*.yaml): inventories and traits that an operator adds to
providers of this agent.

If the default directory does not exist and {NOVA_PROVIDER_CONFIG_LOCATION} does, that is read.
""",
    ),
    cfg.IntOpt(
        "resource_provider_association_refresh",
        default=300,
        min=0,
        mutable=True,
        help="""
Seconds after which inventories, traits and aggregates in placement are looked at again even when
this agent changed nothing. 0: never.
""",
    ),
    cfg.IntOpt(
        "sharing_providers_max_uuids_per_request",
        default=200,
        min=1,
        help="""
How many aggregate or provider uuids one question about sharing providers names at most; more are
asked in several requests. Lower it when a proxy limits the length of a URL.
""",
    ),
    cfg.IntOpt(
        "update_resources_max_workers",
        default=1,
        min=1,
        help="""
How many nodes are brought up to date at once, for drivers of several nodes. Those that wait for
another try are not counted.
""",
    ),
]

guest_opts = [
    cfg.ListOpt(
        "image_type_exclude_list",
        default=[],
        help="""
Image types that this host must not be chosen for although its hypervisor could run them: the
traits COMPUTE_IMAGE_TYPE_* of these are taken off.
""",
    ),
    cfg.IntOpt(
        "consecutive_build_service_disable_threshold",
        default=10,
        min=0,
        help="""
Instances in a row whose build failed on this host, as reported when their claims were dropped,
after which the agent disables the host. Failures of one image alone do not count. 0: never.
""",
    ),
    cfg.BoolOpt(
        "packing_host_numa_cells_allocation_strategy",
        default=False,
        help="""
Whether a guest is put on the NUMA cell with the least room left (True) or with the most (False),
where its allocation leaves the choice: on a host that does not report its cells.
""",
    ),
]

workaround_opts = [
    cfg.BoolOpt(
        "reserve_disk_resource_for_image_cache",
        default=False,
        help="""
Count the image cache (directory _base below instances_path) as reserved DISK_GB.

Only right where the cache lies on the same file system as the guests' disks.
""",
    ),
]


def opts() -> list[cfg.Opt]:
    """Return every option of group compute."""
    return [*cpu_opts, *layout_opts, *provider_opts, *guest_opts]


def provider_config_location(conf: cfg.ConfigOpts) -> Path:
    """Return the directory of provider config files on this machine."""
    configured_path: str = conf.compute.provider_config_location
    if (
        configured_path == PROVIDER_CONFIG_LOCATION
        and not os.path.isdir(configured_path)
        and os.path.isdir(NOVA_PROVIDER_CONFIG_LOCATION)
    ):
        return Path(NOVA_PROVIDER_CONFIG_LOCATION)
    return Path(configured_path)


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of groups compute and workarounds on `conf`."""
    conf.register_opts(opts(), group="compute")
    conf.register_opts(workaround_opts, group="workarounds")


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """Return the options by group, for the generator of the sample file."""
    return [("compute", opts()), ("workarounds", list(workaround_opts))]
