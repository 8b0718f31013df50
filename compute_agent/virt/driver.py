"""The contract between the tracker and a virt driver, and how a driver is found by name.

An out-of-tree driver subclasses `ComputeDriver`, takes the configuration as its only constructor
argument, and is named in [DEFAULT]compute_driver by its full path or through the entry point group
`compute_agent.drivers`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from typing import Any, ClassVar, TypeAlias

from msgspec import Struct
from oslo_config import cfg

from compute_agent.discovery.bounded_calls import HungCall
from compute_agent.discovery.facts import PciAddress
from compute_agent.provider_tree import ProviderTree
from compute_agent.virt.traits import capability_traits

Allocations: TypeAlias = dict[str, dict[str, Any]]
"""Consumer uuid -> its record, exactly as `GET /allocations/{consumer}` returned it:

    {"allocations": {RP_UUID: {"generation": G, "resources": {RC: AMOUNT}}}, "project_id": P,
     "user_id": U, "consumer_generation": CG, "consumer_type": T}
"""

UsageSource: TypeAlias = Callable[[str], Mapping[str, int]]
"""Provider uuid -> amounts that consumers hold of it, by class; empty for none."""

HolderSource: TypeAlias = Callable[[str], Mapping[str, Mapping[str, int]]]
"""Provider uuid -> what each consumer holds of it, by consumer and class; empty for none."""

UnitSource: TypeAlias = Callable[[str], Collection[str]]
"""Instance -> names of the units that it was claimed on this host."""


class ClassChange(Struct, frozen=True):
    """A class whose units a reshape gives another name, another size or another provider.

    :ivar factor: units of `new` for each of `old`; a part of a unit is rounded up to a whole one.
    :ivar provider: uuid of a sharing provider that has the units now; None: one of the tree.
    """

    old: str
    new: str
    factor: Fraction | int = 1
    provider: str | None = None

    def __str__(self) -> str:
        factor = Fraction(self.factor)
        size = "" if factor == 1 else f", {factor.numerator} for each {factor.denominator}"
        place = "" if self.provider is None else f", on sharing provider {self.provider}"
        return f"{self.old} becomes {self.new}{size}{place}"


class CellUse(Struct, frozen=True):
    """What a guest has on one NUMA cell of the host."""

    cell: int
    vcpus: int
    memory_mib: int


class MemoryUse(Struct, frozen=True):
    """Memory that a guest has in pages of one size.

    :ivar cell: the cell that it is on; None = any.
    :ivar page_size_kib: of huge pages; None = ordinary memory.
    """

    cell: int | None
    page_size_kib: int | None
    memory_mib: int


class MdevUse(Struct, frozen=True):
    """A mediated device that a guest holds, and the function it was made on."""

    uuid: str | None
    parent: PciAddress
    type_id: str | None = None


class InstanceDevices(Struct, frozen=True):
    """What of the host a guest really holds; what it does not hold exclusively is left out."""

    pinned_cpus: tuple[int, ...] = ()
    floating_cpus: tuple[int, ...] = ()
    """CPUs its unpinned vCPUs may run on; empty = unknown, or all."""
    cells: tuple[CellUse, ...] = ()
    """Empty: the guest floats over the whole host."""
    page_size_kib: int | None = None
    """Size of the huge pages its memory is in; None = ordinary memory."""
    memory: tuple[MemoryUse, ...] = ()
    """All its memory; empty: that of `cells`, and nothing is known of what floats."""
    pci_addresses: tuple[PciAddress, ...] = ()
    mdevs: tuple[MdevUse, ...] = ()
    pmem: tuple[str, ...] = ()
    """Namespaces of persistent memory by name; by path where a device has no known namespace."""


class ComputeDriver(ABC):
    """Describes the node, or the nodes, that an agent reports.

    The tracker calls every method from one thread per node at a time; different nodes may be asked
    about at once. Errors a driver raises on purpose come from `compute_agent.errors`.
    """

    rebalances_nodes: ClassVar[bool] = False
    """Nodes wander between agents, so that a node that is gone here may live on elsewhere."""

    several_nodes: ClassVar[bool] = False
    """The driver gives every node its uuid; the agent then keeps no identity file."""

    capabilities: ClassVar[Mapping[str, bool]] = {}
    """What the hypervisor can do (supports_...), and with False what it cannot; traits of those not
    named are left as they are. See `capability_traits`."""

    usage_source: UsageSource | None = None
    """Set by the tracker: returns what consumers hold of a provider.

    A driver asks only when it is about to take away something that placement has, so that what
    disappeared while in use stays counted. It may raise PlacementError, which ends the pass.
    None: unknown, and placement itself refuses to drop what is in use.
    """

    holder_source: HolderSource | None = None
    """Set by the tracker, and asked as seldom: who the consumers are, to name them. None: unknown.
    """

    unit_source: UnitSource | None = None
    """Set by an agent that serves the node, by which `init_host` may bring devices of guests back
    that a reboot of the host took. None: this program only looks."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        """Keep the configuration; do no I/O before `init_host`.

        :raises InvalidConfiguration: options contradict each other.
        """
        self.conf = conf

    def init_host(self, host: str) -> None:  # noqa: B027 (most drivers need none)
        """Connect, and check the options against the machine.

        :param host: name of the service, [DEFAULT]host.
        :raises InvalidConfiguration: the start ends, with the message for the operator.
        :raises VirtDriverNotReady: the hypervisor is not there yet; tried again later.
        """

    def cleanup_host(self, host: str) -> None:  # noqa: B027
        """Let go of what `init_host` took, also when it failed, and end `watch`."""

    @contextmanager
    def one_reading(self, nodename: str) -> Iterator[None]:  # noqa: ARG002 (contract)
        """Cover one pass over a node, in one thread.

        A driver may read the node once in it and answer every call of the pass from that; after it
        the reading is dropped. Calls outside a pass read the node themselves.
        """
        yield

    @abstractmethod
    def update_provider_tree(
        self,
        provider_tree: ProviderTree,
        nodename: str,
        allocations: Allocations | None = None,
    ) -> None:
        """Edit `provider_tree` in place until it shows what the node should look like.

        `provider_tree` is a private copy: the node's whole tree as placement knows it, children
        made by other services included, and the sharing providers that reach it by an aggregate.
        The root is named `nodename`.

        The driver sets the whole inventory of every provider that it owns, on every call; a class
        of which there is nothing is left out. It uses `add_traits` and `remove_traits` for traits
        that it owns and never replaces a set of traits or aggregates: operators and other services
        add theirs. It may create children at any depth, and move or remove those it owns. It never
        creates, renames or removes the root, and never touches a provider of another service.

        It decides from the tree and the hardware alone, has no effect outside the tree, and a
        second call on its own result changes nothing.

        :param allocations: None on every ordinary call. When inventory that may be in use has to
            move, the driver raises ReshapeNeeded; at the start of the agent it is then called
            again with the allocations on this tree, edits them in place so that every consumer
            holds what it held where that now lives, and edits the tree as always. The tree of the
            second call may be one that the first has edited half. A provider of which nothing is
            left to a consumer is removed from its record; allocations on providers outside the
            tree stay as they are.
        :raises ReshapeNeeded: only when `allocations` is None, and not on its own result.
        :raises ReshapeFailed: the allocations cannot be moved; names consumer and provider.
        :raises VirtDriverNotReady: no facts at the moment.
        """

    def class_changes(self, nodename: str) -> Collection[ClassChange]:  # noqa: ARG002 (contract)
        """Return the changes of classes that a reshape of this node may make, past ones too.

        Equal names need none, nor do changes that the amounts of all consumers show: one class
        goes, another comes, and every consumer has of it what it had, times one factor.
        """
        return ()

    def reading(self, nodename: str) -> object | None:  # noqa: ARG002 (contract)
        """Return what `update_provider_tree` would edit the node's tree by now, beside the tree.

        While it equals that of a pass that left nothing to do, and placement's tree is the same,
        the driver is not called. None, as for a driver that does not say: it is called each time.
        """
        return None

    @abstractmethod
    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        """Return the names of the nodes managed now.

        :raises VirtDriverNotReady: unknown at the moment.
        """

    @abstractmethod
    def get_available_resource(self, nodename: str) -> dict[str, Any]:
        """Return facts about a node.

        Keys: hypervisor_hostname, hypervisor_type, hypervisor_version (int), vcpus, vcpus_used,
        memory_mb, memory_mb_used, local_gb, local_gb_used, cpu_info (JSON), numa_topology (JSON or
        None); optional uuid, pci_passthrough_devices, stats, supported_instances,
        disk_available_least, gpus (a list, shown by `status`). A driver of several nodes gives
        `uuid`.

        numa_topology lists the cells: `{"id": N, "guests": {"shared_cpus": [...],
        "dedicated_cpus": [...], "reserved_cpus": N, "memory_mib": N, "pages_mib": {KiB: N}}}`,
        with other keys as the driver likes; claims choose cells by it. `guests` None, or absent:
        the cell has nothing of its own for guests. Optional:
        `"cores": [{"cpus": [...], "l3": N}]` with the threads of each core, `"package": N`,
        `"distances": {CELL: N}`.

        :raises ComputeHostNotFound: no such node.
        """

    def get_nodenames_by_uuid(self, refresh: bool = False) -> dict[str, str]:
        """Return node names by uuid, for drivers that give their nodes a uuid."""
        by_uuid = {}
        for nodename in self.get_available_nodes(refresh):
            uuid = self.get_available_resource(nodename).get("uuid")
            if uuid is not None:
                by_uuid[uuid] = nodename
        return by_uuid

    def node_is_available(self, nodename: str) -> bool:
        """Whether the driver manages this node now."""
        return nodename in self.get_available_nodes() or nodename in self.get_available_nodes(True)

    def is_node_deleted(self, nodename: str) -> bool:  # noqa: ARG002 (contract)
        """Return True only when the node is gone for good; False = merely not managed here now."""
        return False

    def capabilities_as_traits(self) -> dict[str, bool]:
        """Return the traits of the capabilities that the driver names, and whether it has them."""
        return capability_traits(self.current_capabilities(), self._excluded_image_types())

    def current_capabilities(self) -> Mapping[str, bool]:
        """Return `capabilities`, with what depends on the options and on the hypervisor.

        :raises VirtDriverNotReady: unknown at the moment.
        """
        return self.capabilities

    def list_instance_uuids(self) -> list[str] | None:
        """Return all consumers that run here; None: this driver does not know.

        An empty list means that nothing runs here, and what still holds something of the host may
        then be deleted. A driver that does not know every guest, stopped ones included, answers
        None, as this one does: no consumer on its host is taken for gone, and of its guests only
        those that were claimed on the host are known.

        :raises HypervisorUnavailable: unknown at the moment.
        """
        return None

    def get_instance_devices(self, uuid: str) -> InstanceDevices | None:  # noqa: ARG002 (contract)
        """Return what of the host a guest holds; None = no guest with that uuid is here.

        :raises HypervisorUnavailable: unknown at the moment. A guest that may hold something of
            which nothing is known is never taken for one that holds nothing.
        """
        return None

    def get_devices_of_instances(self) -> dict[str, InstanceDevices] | None:
        """Return what of the host each guest holds, by uuid; None: the driver does not list guests.

        A driver that can look at all guests at once does so here.

        :raises HypervisorUnavailable: as the two calls that it stands for.
        """
        guest_uuids = self.list_instance_uuids()
        if guest_uuids is None:
            return None
        devices_of = {uuid: self.get_instance_devices(uuid) for uuid in guest_uuids}
        # one without devices ended since it was listed
        return {uuid: devices for uuid, devices in devices_of.items() if devices is not None}

    def watch(self, changed: Callable[[str], None]) -> None:  # noqa: B027
        """Report changes from now on, until `cleanup_host`: the agent looks again at once.

        Without it they are found in the next period.

        :param changed: to be called, from any thread, with what happened, in a few words.
        """

    def hung_calls(self) -> tuple[HungCall, ...]:
        """Return what the driver waits for noticeably long, or has given up; asks nothing."""
        return ()

    def stop_waiting(self) -> None:  # noqa: B027
        """Give calls up that hang: the agent was asked to stop. May come from any thread."""

    def clear_fault(self, provider_uuid: str) -> None:  # noqa: B027 (most drivers see no faults)
        """Forget what makes a device count as broken: an operator declares it well again."""

    def caveats(self, nodename: str) -> tuple[str, ...]:  # noqa: ARG002 (contract)
        """Return sentences on what of the node was reported last that is not what it should be."""
        return ()

    def held(self, provider_uuid: str) -> Mapping[str, int]:
        """Return what consumers hold of a provider; empty without a source."""
        return {} if self.usage_source is None else self.usage_source(provider_uuid)

    def holders(self, provider_uuid: str) -> Mapping[str, Mapping[str, int]]:
        """Return what each consumer holds of a provider; empty without a source."""
        return {} if self.holder_source is None else self.holder_source(provider_uuid)

    def _excluded_image_types(self) -> frozenset[str]:
        return frozenset(name.lower() for name in self.conf.compute.image_type_exclude_list)
