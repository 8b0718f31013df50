"""Options of groups compute and workarounds: CPU sets, layout, provider config files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from oslo_config import cfg
from oslo_config import types as cfg_types

from compute_agent.programs.declared_options import options

PROVIDER_CONFIG_LOCATION = "/etc/compute-agent/provider_config/"
NOVA_PROVIDER_CONFIG_LOCATION = "/etc/nova/provider_config/"

OPTIONS: Final = {
    "compute": options(
        f"""
cpu_shared_set: text
    Host CPUs for unpinned guests (class VCPU), for example 4-12,^8,15.

    If neither this option nor cpu_dedicated_set is set, all online CPUs are shared. If only
    cpu_dedicated_set is set, no CPU is shared. CPUs in neither set are left to the host.

cpu_dedicated_set: text
    Host CPUs for pinned guests (class PCPU), for example 2-15,^4. Each CPU is given to one guest.

    Must not overlap cpu_shared_set. A CPU that is not online is an error, unless
    [libvirt]cpu_power_management switches idle CPUs off.

enable_numa_reporting_to_placement: bool (false)
    Report each NUMA cell as a resource provider of its own, with its CPUs, memory and huge pages.
    GPUs and NICs are below the cell that they are attached to.

    A change of this option moves inventory that may be in use. The agent moves the allocations with
    it, only at its start. Run `compute-agent plan` first to see the changes.

reserved_host_memory_mb_per_numa: value
    Memory in MiB that is reserved for the host on each NUMA cell, for example 0:2048,1:512.

    Used only if NUMA cells are reported: it then replaces [DEFAULT]reserved_host_memory_mb, and
    cells that it does not name reserve nothing.

provider_config_location: text ({PROVIDER_CONFIG_LOCATION})
    Directory of provider config files (*.yaml), in which an operator adds inventories and traits to
    the providers of this agent.

    If the default directory does not exist, {NOVA_PROVIDER_CONFIG_LOCATION} is read if it exists.

resource_provider_association_refresh: int 0.. (300) mutable
    Seconds after which the agent reads inventories, traits and aggregates from placement again,
    even if it changed nothing. 0: never.

sharing_providers_max_uuids_per_request: int 1.. (200)
    Maximum number of UUIDs of aggregates or providers in one request about sharing providers. More
    UUIDs are split over several requests. Lower it if a proxy limits the length of URLs.

update_resources_max_workers: int 1.. (1)
    Number of nodes that are updated at the same time, with a driver of several nodes. Nodes that
    wait for another try do not count.

image_type_exclude_list: list ()
    Image types for which this host must not be chosen, although its hypervisor supports them. Their
    traits COMPUTE_IMAGE_TYPE_* are removed from the host.

consecutive_build_service_disable_threshold: int 0.. (10)
    Number of instances whose build failed on this host in a row, after which the agent disables the
    host. The caller reports a failed build when it drops the claim. The host stays enabled if all
    of them were built from the same image. 0: never disable.

packing_host_numa_cells_allocation_strategy: bool (false)
    Whether a guest is put on the NUMA cell with the least free room (true) or with the most
    (false), among those that are equal otherwise. The agent reads it for a host that does not
    report its cells; of others the scheduler chooses the cells, and reads it from its own
    configuration.

spare_device_cells: bool (true)
    Keep guests off NUMA cells that have free devices which they have no use for, while other cells
    have room: guests with such devices find CPUs beside them later. The agent and the scheduler
    read it.
""",
        reserved_host_memory_mb_per_numa={
            "type": cfg_types.Dict(cfg_types.Integer(min=0)),
            "default": {},
        },
    ),
    "workarounds": options("""
reserve_disk_resource_for_image_cache: bool (false)
    Count the image cache (directory _base below instances_path) as reserved DISK_GB.

    Enable it only if the cache is on the same file system as the disks of guests.
"""),
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
