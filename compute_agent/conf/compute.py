"""Options of groups compute and workarounds: CPU sets, layout, provider config files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from oslo_config import cfg
from oslo_config import types as cfg_types

PROVIDER_CONFIG_LOCATION = "/etc/compute-agent/provider_config/"
NOVA_PROVIDER_CONFIG_LOCATION = "/etc/nova/provider_config/"

OPTIONS: Final[dict[str, list[cfg.Opt]]] = {
    "compute": [
        cfg.StrOpt(
            "cpu_shared_set",
            help="""
Host CPUs for unpinned guests (class VCPU), for example 4-12,^8,15.

If neither this option nor cpu_dedicated_set is set, all online CPUs are shared. If only
cpu_dedicated_set is set, no CPU is shared. CPUs in neither set are left to the host.
""",
        ),
        cfg.StrOpt(
            "cpu_dedicated_set",
            help="""
Host CPUs for pinned guests (class PCPU), for example 2-15,^4. Each CPU is given to one guest.

Must not overlap cpu_shared_set. A CPU that is not online is an error, unless
[libvirt]cpu_power_management switches idle CPUs off.
""",
        ),
        cfg.BoolOpt(
            "enable_numa_reporting_to_placement",
            default=False,
            help="""
Report each NUMA cell as a resource provider of its own, with its CPUs, memory and huge pages.
GPUs and NICs are below the cell that they are attached to.

A change of this option moves inventory that may be in use. The agent moves the allocations with
it, only at its start. Run `compute-agent plan` first to see the changes.
""",
        ),
        cfg.Opt(
            "reserved_host_memory_mb_per_numa",
            type=cfg_types.Dict(cfg_types.Integer(min=0)),
            default={},
            help="""
Memory in MiB that is reserved for the host on each NUMA cell, for example 0:2048,1:512.

Used only if NUMA cells are reported: it then replaces [DEFAULT]reserved_host_memory_mb, and
cells that it does not name reserve nothing.
""",
        ),
        cfg.StrOpt(
            "provider_config_location",
            default=PROVIDER_CONFIG_LOCATION,
            help=f"""
Directory of provider config files (*.yaml), in which an operator adds inventories and traits to
the providers of this agent.

If the default directory does not exist, {NOVA_PROVIDER_CONFIG_LOCATION} is read if it exists.
""",
        ),
        cfg.IntOpt(
            "resource_provider_association_refresh",
            default=300,
            min=0,
            mutable=True,
            help="""
Seconds after which the agent reads inventories, traits and aggregates from placement again, even
if it changed nothing. 0: never.
""",
        ),
        cfg.IntOpt(
            "sharing_providers_max_uuids_per_request",
            default=200,
            min=1,
            help="""
Maximum number of UUIDs of aggregates or providers in one request about sharing providers. More
UUIDs are split over several requests. Lower it if a proxy limits the length of URLs.
""",
        ),
        cfg.IntOpt(
            "update_resources_max_workers",
            default=1,
            min=1,
            help="""
Number of nodes that are updated at the same time, with a driver of several nodes. Nodes that
wait for another try do not count.
""",
        ),
        cfg.ListOpt(
            "image_type_exclude_list",
            default=[],
            help="""
Image types for which this host must not be chosen, although its hypervisor supports them. Their
traits COMPUTE_IMAGE_TYPE_* are removed from the host.
""",
        ),
        cfg.IntOpt(
            "consecutive_build_service_disable_threshold",
            default=10,
            min=0,
            help="""
Number of instances whose build failed on this host in a row, after which the agent disables the
host. The caller reports a failed build when it drops the claim. The host stays enabled if all of
them were built from the same image. 0: never disable.
""",
        ),
        cfg.BoolOpt(
            "packing_host_numa_cells_allocation_strategy",
            default=False,
            help="""
Whether a guest is put on the NUMA cell with the least free room (true) or with the most (false),
among those that are equal otherwise. The agent reads it for a host that does not report its cells;
of others the scheduler chooses the cells, and reads it from its own configuration.
""",
        ),
        cfg.BoolOpt(
            "spare_device_cells",
            default=True,
            help="""
Keep guests off NUMA cells that have free devices which they have no use for, while other cells have
room: guests with such devices find CPUs beside them later. The agent and the scheduler read it.
""",
        ),
    ],
    "workarounds": [
        cfg.BoolOpt(
            "reserve_disk_resource_for_image_cache",
            default=False,
            help="""
Count the image cache (directory _base below instances_path) as reserved DISK_GB.

Enable it only if the cache is on the same file system as the disks of guests.
""",
        ),
    ],
}


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
