"""A driver whose nodes are topologies: facts in, tree out. Host driver and fakes build on it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from oslo_config import cfg
from oslo_log import log

from compute_agent import errors
from compute_agent.discovery.bounded_calls import BoundedCalls, HungCall
from compute_agent.discovery.facts import HostTopology, PciAddress
from compute_agent.programs.kept_values import LastingConditions
from compute_agent.provider_tree import SHARING_TRAIT, ProviderData, ProviderTree
from compute_agent.virt import reshape
from compute_agent.virt.driver import Allocations, ComputeDriver, InstanceDevices
from compute_agent.virt.guest_checks import cpu_set_faults, device_faults
from compute_agent.virt.layout import LayoutOptions, lay_out
from compute_agent.virt.layout.application import Ratios, apply_layout, identify
from compute_agent.virt.layout.devices.pci import has_remote_managed
from compute_agent.virt.layout.unmet_options import unreported
from compute_agent.virt.readings import NodeReading, ReadingsOfPass
from compute_agent.virt.reshape.moves import Situation, held_by_provider
from compute_agent.virt.reshape.pci import no_longer_reported
from compute_agent.virt.settings import layout_options
from compute_agent.virt.traits import REMOTE_MANAGED_PORTS

LOG = log.getLogger(__name__)

_Read = TypeVar("_Read")


class TopologyDriver(ComputeDriver):
    """Implements the contract for anything that can be described as a `HostTopology`."""

    hypervisor_type = "host"
    hypervisor_version = 0

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        super().__init__(conf)
        self.options = layout_options(conf)
        self._sources: list[BoundedCalls] = []
        self._pass = ReadingsOfPass()
        self._conditions = LastingConditions()
        self._gpu_of: dict[str, PciAddress] = {}
        """Provider -> the GPU that it is, or is a function of, as they were laid out last."""
        self._before_reshape: dict[str, ProviderTree] = {}
        """Node -> its tree as placement had it when a reshape was asked for."""
        self._has_remote_managed = False
        self._caveats: dict[str, tuple[str, ...]] = {}
        self._last_readings: dict[str, NodeReading] = {}
        self._asked_others: dict[str, bool] = {}
        """Node -> whether its tree was edited by what guests and consumers hold, too."""

    @abstractmethod
    def topology(self, nodename: str) -> HostTopology:
        """Read the node, whatever was read before.

        :raises ComputeHostNotFound: no such node.
        :raises VirtDriverNotReady: it cannot be looked at now.
        """

    def current_options(self) -> LayoutOptions:
        """Return the options, with those that are read again for each pass."""
        return self.options

    def add_source(self, source: BoundedCalls) -> None:
        """Take in what bounds the calls to a source of the driver."""
        self._sources.append(source)

    def hung_calls(self) -> tuple[HungCall, ...]:
        return tuple(call for source in self._sources for call in source.hanging())

    def watch(self, changed: Callable[[str], None]) -> None:
        """Report a source that answers again after a call to it was given up."""
        for source in self._sources:
            source.on_return = changed

    def stop_waiting(self) -> None:
        for source in self._sources:
            source.stop_waiting()

    @contextmanager
    def one_reading(self, nodename: str) -> Iterator[None]:  # noqa: ARG002 (contract)
        self._pass.by_subject = {}
        try:
            yield
        finally:
            self._pass.by_subject = None

    @contextmanager
    def same_reading(self) -> Iterator[None]:
        """Cover several questions with one reading: that of the pass, or one of theirs."""
        if self._pass.by_subject is not None:
            yield
            return
        with self.one_reading(""):
            yield

    @property
    def in_pass(self) -> bool:
        """Whether this thread reads for a pass, and each thing once."""
        return self._pass.by_subject is not None

    def once_per_pass(self, what: str, read: Callable[[], _Read]) -> _Read:
        """Return what `read` returned in this pass; outside a pass, read. Raises as `read`."""
        readings = self._pass.by_subject
        if readings is None:
            return read()
        if what not in readings:
            readings[what] = read()
        known_reading: _Read = readings[what]
        return known_reading

    def _reading(self, nodename: str) -> NodeReading:
        """Return what this pass read of the node; outside a pass, read it. Raises as `topology`."""

        def read() -> NodeReading:
            reading = NodeReading(self.topology(nodename), self.current_options())
            last = self._last_readings.get(nodename)
            if last == reading:
                return last
            self._last_readings[nodename] = reading
            return reading

        return self.once_per_pass(f"node {nodename}", read)

    def reading(self, nodename: str) -> object | None:
        """As every driver; a subclass that edits the tree further says itself by what."""
        is_extended = type(self).update_provider_tree is not TopologyDriver.update_provider_tree
        return None if is_extended else self.own_reading(nodename)

    def own_reading(self, nodename: str) -> NodeReading | None:
        """Return what this class edits the tree by; None: also by what others hold."""
        return None if self._asked_others.get(nodename) else self._reading(nodename)

    def init_host(self, host: str) -> None:
        """Check the options against the machine.

        :raises InvalidConfiguration: everything that does not fit it.
        """
        super().init_host(host)
        for nodename in self.get_available_nodes():
            reading = self._reading(nodename)
            layout = lay_out(nodename, reading.topology, reading.options)
            if layout.errors:
                raise errors.InvalidConfiguration(
                    f"The configuration does not fit this machine: {'; '.join(layout.errors)}."
                )
        self._check_guests()

    def update_provider_tree(
        self,
        provider_tree: ProviderTree,
        nodename: str,
        allocations: Allocations | None = None,
    ) -> None:
        stored_tree = self._as_stored(provider_tree, nodename, reshapes=allocations is not None)
        reading = self._reading(nodename)
        self._pass.was_asked = False
        situation = self._lay_out(stored_tree, provider_tree, nodename, reading)
        if not self.options.pci.report:
            self._refuse_to_drop_held_devices(situation)
        inherited_ratios = {
            rc: float(record["allocation_ratio"]) for rc, record in situation.root.inventory.items()
        }
        ratios = Ratios(reading.options.ratios, inherited_ratios)
        if allocations is None:
            reasons = list(reshape.reasons(situation, self._guests))
            if reasons:
                if not provider_tree.stale_uuids():
                    self._before_reshape[nodename] = provider_tree.snapshot()
                raise errors.ReshapeNeeded(f"{nodename}: {'; '.join(reasons)}")
            held_units = self.held
        else:
            reshape.move_allocations(
                situation, allocations, self.get_instance_devices, ratios, self._guests
            )
            sums = held_by_provider(allocations)

            def held_units(provider_uuid: str) -> Mapping[str, int]:
                return sums.get(provider_uuid, {})

        kept_records = apply_layout(
            provider_tree, situation.layout, situation.identities, ratios, held_units
        )
        self._log_once(nodename, kept=frozenset(kept_records))
        self._asked_others[nodename] = self._pass.was_asked

    def capabilities_as_traits(self) -> dict[str, bool]:
        """As every driver; without devices for them ports are not managed remotely."""
        traits = super().capabilities_as_traits()
        if REMOTE_MANAGED_PORTS in traits:
            traits[REMOTE_MANAGED_PORTS] &= self._has_remote_managed
        return traits

    def get_available_resource(self, nodename: str) -> dict[str, Any]:
        reading = self._reading(nodename)
        return {
            "hypervisor_hostname": nodename,
            "hypervisor_type": self.hypervisor_type,
            "hypervisor_version": self.hypervisor_version,
            **reading.resources,
        }

    def caveats(self, nodename: str) -> tuple[str, ...]:
        return self._caveats.get(nodename, ())

    def clear_fault(self, provider_uuid: str) -> None:
        address = self._gpu_of.get(provider_uuid)
        if address is not None:
            self.forget_fault(address)

    def forget_fault(self, address: PciAddress) -> None:
        """Forget the errors that a GPU reported."""

    def _check_guests(self) -> None:
        guests = self._guests() or {}
        cpu_faults = list(cpu_set_faults(guests, self.options.cpu_sets))
        if cpu_faults and self.conf.compute_agent.allow_cpu_set_change:
            LOG.error("The CPU sets do not fit the guests that run: %s", "; ".join(cpu_faults))
            cpu_faults = []
        faults = [
            *cpu_faults,
            *device_faults(guests, self.options.gpu.mdev_types, self.options.pmem),
        ]
        if faults:
            raise errors.InvalidConfiguration(
                f"The configuration does not fit the guests that run: {'; '.join(faults)}. Set the "
                "options back, or move these guests away first; for CPU sets, "
                "[compute_agent]allow_cpu_set_change lets the agent start anyway."
            )

    def _as_stored(self, tree: ProviderTree, nodename: str, *, reshapes: bool) -> ProviderTree:
        """Return the tree as placement has it.

        The tree of the second call of a reshape may be that of the first, edited half: what then
        counts is what the first call saw. One that was read again since counts itself.
        """
        # what a call saw is for the very next one, or for none
        before = self._before_reshape.pop(nodename, None)
        if not reshapes or before is None:
            return tree
        common = [uuid for uuid in tree.get_provider_uuids() if before.exists(uuid)]
        has_moved = any(
            tree.data(uuid).generation != before.data(uuid).generation for uuid in common
        )
        return tree if has_moved else before

    def _lay_out(
        self, stored_tree: ProviderTree, tree: ProviderTree, nodename: str, reading: NodeReading
    ) -> Situation:
        """Lay the node out.

        :param stored_tree: the tree as placement has it, which the layout goes on from.
        :param tree: the one to be edited.
        """
        topology, options = reading.topology, reading.options
        root = stored_tree.data(nodename)
        names = frozenset(
            stored_tree.data(u).name for u in stored_tree.get_provider_uuids(root.uuid)[1:]
        )
        shared_disk = self._disk_is_shared(stored_tree, root)
        layout = lay_out(nodename, topology, options, existing_names=names, shared_disk=shared_disk)
        caveats = layout.caveats
        if topology.disk_fault is not None and not shared_disk:
            caveats = (f"{nodename} reports no DISK_GB: {topology.disk_fault}", *caveats)
        self._caveats[nodename] = caveats
        self._log_once(
            nodename,
            warnings=frozenset((*layout.warnings, *caveats)) - frozenset(layout.errors),
            errors=frozenset(layout.errors),
            unreported=frozenset(unreported(topology, layout, options)),
        )
        self._has_remote_managed = has_remote_managed(topology, options.pci)
        identities = identify(tree, root.uuid, layout)
        whole = {
            address: gpu.address
            for gpu in topology.gpus
            for address in (gpu.address, *(vf.address for vf in gpu.vfs))
        }
        self._gpu_of |= {
            identities.uuids[wanted.key]: whole[wanted.address]
            for wanted in layout.children
            if wanted.address in whole
        }
        return Situation(stored_tree, layout, identities, topology)

    def _disk_is_shared(self, tree: ProviderTree, root: ProviderData) -> bool:
        """Whether a sharing provider gives the disk, so that the root must not count it again.

        Disk of the root that a consumer may hold cannot be moved to a provider that many hosts
        share: it stays until an operator has moved the allocations.
        """
        sharing = [
            provider
            for provider in tree.roots
            if SHARING_TRAIT in provider.traits
            and "DISK_GB" in provider.inventory
            and provider.aggregates & root.aggregates
        ]
        if not sharing:
            return False
        if "DISK_GB" not in root.inventory:
            return True
        if self.usage_source is not None and not self.held(root.uuid).get("DISK_GB"):
            return True
        self._log_once(
            root.name,
            disk=frozenset(
                {
                    f"{root.name} counts its own DISK_GB although {sharing[0].name} "
                    f"({sharing[0].uuid}) shares disk with it, so the same disk is counted twice. "
                    "Some of it is allocated on the host. For each consumer that `openstack "
                    f"resource provider show --allocations {root.uuid}` lists, set its allocations "
                    "again with the DISK_GB on the sharing provider (`openstack resource provider "
                    "allocation set`), then the host's own record is removed automatically"
                }
            ),
        )
        return False

    def _refuse_to_drop_held_devices(self, situation: Situation) -> None:
        """Raise InvalidConfiguration while PCI devices are held that are not reported now."""
        holders = [
            f"{consumer} holds {amount} of {resource_class} on {provider.name}"
            for provider, classes in no_longer_reported(situation)
            for consumer, amounts in sorted(self.holders(provider.uuid).items())
            for resource_class, amount in sorted(amounts.items())
            if resource_class in classes
        ]
        if holders:
            raise errors.InvalidConfiguration(
                "[pci]report_in_placement is off, and placement has allocations of PCI devices of "
                f"this host: consumer {'; consumer '.join(holders)}. Switch it on again, or move "
                "these guests away first; without allocations the devices are taken out of "
                "placement."
            )

    def held(self, provider_uuid: str) -> Mapping[str, int]:
        self._pass.was_asked = True
        return super().held(provider_uuid)

    def holders(self, provider_uuid: str) -> Mapping[str, Mapping[str, int]]:
        self._pass.was_asked = True
        return super().holders(provider_uuid)

    def _guests(self) -> dict[str, InstanceDevices] | None:
        """Return what the guests hold that are known to be here; None: they are not listed."""
        self._pass.was_asked = True
        return self.get_devices_of_instances()

    def _log_once(self, nodename: str, **topics: frozenset[str]) -> None:
        """Log sentences that were not true in the pass before."""
        for topic, sentences in topics.items():
            log_it = LOG.error if topic in ("errors", "disk", "kept") else LOG.warning
            log_it = LOG.info if topic == "unreported" else log_it
            for sentence in self._conditions.new_among((nodename, topic), sentences):
                log_it("%s", sentence)
