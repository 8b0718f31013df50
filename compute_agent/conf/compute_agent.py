"""Options of group compute_agent, which only this agent has."""

from __future__ import annotations

from typing import Final

from oslo_config import types as cfg_types

from compute_agent.programs.declared_options import options

_UUID = cfg_types.String(
    regex=r"^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$", max_length=36
)

OPTIONS: Final = {
    "compute_agent": options(
        """
startup_placement_timeout: int 0.. (0)
    Seconds that the agent waits at its start for placement to become reachable. After that it exits
    with status 3. 0: no limit, so that hosts and placement can be started in any order.

placement_connections: int 1.. (4)
    Maximum number of requests that are sent to placement at the same time to read or write siblings
    in a tree. A larger number makes the first report of a large host faster, and occupies as many
    workers of placement.

use_placement_extensions: text (auto)
    Whether to use extensions of the Placement API if the server announces them. With extensions the
    scheduler can request aggregates of the host itself, and NUMA nodes of a guest on different
    cells; its limit is then not spent on candidates that it would reject. The agent and the offline
    migration read the tree of a host, and its consumers, with one request.

    - auto: use the extensions that the server announces
    - never: use the plain Placement API only

follow_changes: bool (false)
    Whether to follow the feed of changes of placement, if the server has one (`placement-ext 1.1`).
    A pass then runs within a second after another writer changed providers, inventories, traits or
    aggregates of this host. Periodic passes are then only a check, and
    [DEFAULT]update_resources_interval may be longer. Each such agent keeps one request waiting at
    placement, which accepts `[placement_server]max_watchers` of them for each of its workers.

bulk_inventory: text (auto)
    Whether to write many changed inventories with one request. This needs permission to reshape;
    without the permission the agent sends one request per provider.

    - auto: one atomic request, if many inventories change and it is permitted
    - never: one request per provider

on_hostname_change: text (rename)
    Action at the start if the name of the host is no longer the name of its root provider.

    - rename: rename the resource providers of this node
    - refuse: do not start

audit_interval: int 0.. (3600) mutable
    Seconds between two audits. An audit compares the instances on this host with the allocations on
    it. 0: never. It costs one request for each provider that has inventory, and one for each
    consumer that does not run here.

audit_grace: int 0.. (300) mutable
    Minimum age in seconds of an allocation without an instance before an audit suspects it. Until
    then the instance may be on its way to this host. Raise it if building or migrating an instance
    takes longer.

heal_orphans: bool (false) mutable
    Delete allocations on this host whose instance no longer exists. If an audit suspects an
    allocation, the agent asks the instance source first. If false, such allocations are only
    reported.

heal_missing: bool (false) mutable
    Create the allocations of instances that run here and have none, from the flavors that the
    instance source returns. Requires instance_source nova or file, because agents do not know
    flavors. If false, such instances are only reported.

instance_source: text (agents)
    Source of instances. `compute-manage placement audit`, and the agent with heal_orphans, ask it
    whether an instance exists. `heal_allocations`, and the agent with heal_missing, ask it what an
    instance needs, which agents do not know. With file, --instances or instance_file names the
    file. With nova, the groups nova and neutron configure the access to these services.

    - agents: the lists of all agents
    - nova: the Compute API, with an administrator's credential
    - file: a file of instances

instance_file: text
    File with all instances and unfinished migrations of the cloud, if instance_source is file: one
    UUID or one JSON object per line. Replace the file as a whole when it changes. The agent does
    not treat a consumer as gone if it was written to placement after the file, or less than
    audit_grace seconds before the file.

legacy_self_claim: text (never)
    Action for an instance for which the scheduler allocated nothing. Use auto only during a rolling
    upgrade: the host then allocates what the caller names, or the amounts of the flavor on its root
    provider. With auto, the scheduler does not claim until every agent announces that it expects
    this.

    - auto: allocate on this host if the scheduler did not
    - never: refuse an instance that has no allocation

cell_uuid: value
    UUID of the cell of Nova that the host is in, which nova-conductor compares in a resize. Agents
    announce it. A scheduler takes its own value for hosts that announce none, such as those with
    nova-compute. Unset: the null UUID, which is the cell of no host.

call_timeout: int 1.. (60)
    Maximum number of seconds for one call to libvirt or NVML, and for one read of a file of the
    kernel or of the disk of the guests. After that the agent abandons the call: the pass fails and
    names the call, `compute-agent status` and the metrics show it, and the agent does not ask that
    source again until the call returns.

allow_cpu_set_change: bool (false)
    Start even if an instance still holds a CPU that was removed from the CPU sets.

shared_disk_provider: value
    UUID of the resource provider with the DISK_GB of a storage pool that several hosts share. An
    operator creates this provider, with the trait MISC_SHARES_VIA_AGGREGATE and in an aggregate of
    the root providers of the hosts. A host that is connected to such a provider reports no DISK_GB
    of its own. If this option is set, this host keeps the total of the provider equal to the size
    of the store of [libvirt]images_type. It writes the total only if the two differ by more than 1
    %, after a random delay, so that one host writes for all.

status_socket: text ($state_path/status.sock)
    UNIX socket on which the running agent answers commands such as `compute-agent status` and
    `compute-agent report`. Empty: no socket. The path may have at most 107 bytes.

metrics_bind: text
    ADDRESS:PORT on which the agent serves metrics to Prometheus. Unset: no metrics. There is no
    authentication: use a loopback address or a management network.
""",
        cell_uuid={"type": _UUID},
        shared_disk_provider={"type": _UUID},
    )
}
