"""The driver of the hypervisor that [libvirt]connection_uri names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from msgspec.structs import replace
from oslo_config import cfg
from oslo_log import log

from compute_agent import errors, extras
from compute_agent.discovery.errors import DiscoveryError, HypervisorUnreachable
from compute_agent.discovery.facts import HostTopology, PciAddress
from compute_agent.discovery.libvirt import guests, source
from compute_agent.discovery.libvirt.connection import LibvirtConnection
from compute_agent.discovery.libvirt.domain import DEFAULT_HUGE_PAGE_KIB
from compute_agent.discovery.libvirt.events import HypervisorEvents
from compute_agent.discovery.libvirt.facts import Guest, HypervisorReading
from compute_agent.discovery.libvirt.guest_abilities import AbilityReader
from compute_agent.discovery.libvirt.guests import GuestReading
from compute_agent.discovery.libvirt.join import join
from compute_agent.discovery.storage import measure
from compute_agent.provider_tree import MAX_NAME
from compute_agent.virt.driver import InstanceDevices, UnitSource
from compute_agent.virt.host import LocalMachine
from compute_agent.virt.layout import LayoutOptions
from compute_agent.virt.libvirt import host_traits, mdevs
from compute_agent.virt.libvirt.holdings import holdings
from compute_agent.virt.libvirt.host_traits import check_versions
from compute_agent.virt.libvirt.settings import (
    LibvirtSettings,
    check_guest_cpu,
    disk_seen_from_elsewhere,
    libvirt_settings,
)
from compute_agent.virt.topology_driver import TopologyDriver

LOG = log.getLogger(__name__)

_Answer = TypeVar("_Answer")


class LibvirtDriver(TopologyDriver):
    """One node: the host of one hypervisor, named as the hypervisor names it.

    A hypervisor of another machine, or libvirt's test driver, is described by libvirt alone:
    nothing of the machine that the agent runs on belongs to it.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        super().__init__(conf)
        extras.require(
            "libvirt",
            "[DEFAULT]compute_driver = libvirt.LibvirtDriver",
            "libvirt",
            package="python3-libvirt",
        )
        self.settings: LibvirtSettings = libvirt_settings(conf)
        self.connection = LibvirtConnection(
            self.settings.uri, timeout=float(conf.compute_agent.call_timeout)
        )
        self.add_source(self.connection.calls)
        self._ability_reader = AbilityReader(self.connection, self.settings.guest_cpu)
        self._last_reading: HypervisorReading | None = None
        self._machine = LocalMachine(conf) if self.settings.is_local else None
        if self._machine is not None:
            self.add_source(self._machine.calls)
        self._disk = disk_seen_from_elsewhere(conf)
        self._events: HypervisorEvents | None = None
        self._nodename: str | None = None
        """Name of the host as the hypervisor gave it first."""

    def init_host(self, host: str) -> None:
        """Connect, and check the options against hypervisor, machine and guests."""
        self.get_available_nodes()
        if self.unit_source is not None:
            self._bring_mdevs_back(self.unit_source)
        with self.same_reading():
            reading = self.hypervisor()
            check_versions(reading)
            host_traits.check_tpm(reading, self.settings.traits)
            guest_cpu, host_cpu = self.settings.guest_cpu, reading.capabilities
            self._ask(lambda: check_guest_cpu(self.connection, guest_cpu, host_cpu))
            super().init_host(host)
        if self._nodename != host:
            LOG.info(
                "The node is named %s, as its hypervisor is; the service is named %s, by "
                "[DEFAULT]host.",
                self._nodename,
                host,
            )

    def _bring_mdevs_back(self, claimed_units: UnitSource) -> None:
        """Make the mediated devices of guests persistent, and again where a reboot took them."""
        with self.same_reading():
            holders = [guest for guest in self.guests().guests.values() if guest.mdevs]
            if not holders:
                return
            (nodename,) = self.get_available_nodes()
            places = mdevs.places_of(self.topology(nodename), self.options.gpu.mdev_types)
            devices = self.hypervisor().devices.mdevs
        todo = mdevs.steps(holders, devices, places, claimed_units)
        self._ask(lambda: mdevs.carry_out(self.connection, todo))

    def cleanup_host(self, host: str) -> None:
        super().cleanup_host(host)
        if self._events is not None:
            self._events.stop()
            self._events = None
        if self._machine is not None:
            self._machine.close()
        self.connection.close()

    def watch(self, changed: Callable[[str], None]) -> None:
        super().watch(changed)
        self._events = HypervisorEvents(self.connection, changed)
        self._events.start()
        if self._machine is not None:
            self._machine.watch(changed)

    def forget_fault(self, address: PciAddress) -> None:
        if self._machine is not None:
            self._machine.forget_fault(address)

    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        if self._nodename is not None and not refresh:
            return [self._nodename]
        name = self._ask(
            lambda: self.connection.call("getHostname", lambda c: str(c.getHostname()))
        )
        if not 0 < len(name) <= MAX_NAME:
            raise errors.VirtDriverNotReady(
                f"The hypervisor at {self.settings.uri} calls its host {name[:40]!r}, a name of "
                f"{len(name)} characters, and a node needs 1 to {MAX_NAME}. Correct the host name "
                "of that machine."
            )
        # one that is new while the agent runs is followed by its next start
        self._nodename = self._nodename or name
        return [name]

    def topology(self, nodename: str) -> HostTopology:
        if self._nodename is None:
            self.get_available_nodes()
        if nodename != self._nodename:
            raise errors.ComputeHostNotFound(
                f"There is no node {nodename!r} here: the hypervisor at {self.settings.uri} is "
                f"{self._nodename!r}."
            )
        reading = self.hypervisor()
        if self._machine is not None:
            return replace(join(reading, self._machine.read(nodename)), hostname=nodename)
        disk, disk_fault = measure(self._disk)
        topology = join(reading, None)
        return replace(
            topology,
            hostname=nodename,
            disk=disk,
            disk_fault=disk_fault,
            pmem_fault=f"{self.settings.uri} is a hypervisor of another machine",
        )

    def hypervisor(self) -> HypervisorReading:
        """Return what libvirt reports of the host in this pass.

        :raises VirtDriverNotReady: there is no answer now.
        """

        def read() -> HypervisorReading:
            return source.read(self.connection, self._ability_reader, self._last_reading)

        reading = self.once_per_pass("hypervisor", lambda: self._ask(read))
        self._last_reading = reading
        return reading

    def current_capabilities(self) -> Mapping[str, bool]:
        return host_traits.capabilities(self.hypervisor(), self.settings.traits)

    def capabilities_as_traits(self) -> dict[str, bool]:
        """As every driver, with the traits of what libvirt reports that guests can have."""
        with self.same_reading():
            traits = super().capabilities_as_traits()
            return traits | host_traits.host_traits(self.hypervisor(), self.settings.traits)

    def guests(self) -> GuestReading:
        """Return the guests of this pass, running or not.

        :raises HypervisorUnavailable: they are unknown at the moment.
        """
        return self.once_per_pass(
            "guests",
            lambda: self._ask_for_guests(lambda: guests.read(self.connection, self._huge_page_kib)),
        )

    @property
    def _huge_page_kib(self) -> int:
        known_kib = self._machine.default_huge_page_kib if self._machine else None
        return known_kib or DEFAULT_HUGE_PAGE_KIB

    def current_options(self) -> LayoutOptions:
        if self._machine is None:
            return self.options
        return replace(self.options, image_cache_bytes=self._machine.image_cache_bytes())

    def get_available_resource(self, nodename: str) -> dict[str, Any]:
        with self.same_reading():
            facts = super().get_available_resource(nodename)
            reading = self.hypervisor()
            running_guests = [guest for guest in self.guests().guests.values() if guest.is_running]
        return {
            **facts,
            "hypervisor_type": reading.hypervisor,
            "hypervisor_version": reading.hypervisor_version,
            "vcpus_used": sum(guest.vcpus for guest in running_guests),
            "memory_mb_used": sum(guest.memory_kib for guest in running_guests) // 1024,
            # architecture, kind of hypervisor, kind of guest: containers are `exe`, machines `hvm`
            "supported_instances": sorted(
                {
                    (emulator.arch, virt_type, "exe" if virt_type == "lxc" else "hvm")
                    for emulator in reading.capabilities.emulators
                    for virt_type in emulator.virt_types
                }
            ),
        }

    def list_instance_uuids(self) -> list[str] | None:
        if self.in_pass:
            return sorted([*self.guests().guests, *self.guests().unread_guests])
        return self._ask_for_guests(lambda: guests.uuids(self.connection))

    def get_instance_devices(self, uuid: str) -> InstanceDevices | None:
        if self.in_pass:
            reading = self.guests()
            self._refuse_unread(
                {uuid: reading.unread_guests[uuid]} if uuid in reading.unread_guests else {}
            )
            guest = reading.guests.get(uuid)
        else:
            guest = self._ask_for_guests(
                lambda: guests.read_one(self.connection, uuid, self._huge_page_kib)
            )
        return None if guest is None else self._holdings(guest)

    def get_devices_of_instances(self) -> dict[str, InstanceDevices] | None:
        with self.same_reading():
            reading = self.guests()
            self._refuse_unread(reading.unread_guests)
            return {uuid: self._holdings(guest) for uuid, guest in reading.guests.items()}

    def _holdings(self, guest: Guest) -> InstanceDevices:
        online = self.once_per_pass(
            "online CPUs", lambda: self._ask_for_guests(lambda: guests.online_cpus(self.connection))
        )
        last = self._last_reading
        cells = () if last is None else tuple(cell.cpus for cell in last.capabilities.cells)
        return holdings(guest, self.options.cpu_sets, online, self._namespaces(guest), cells)

    def _namespaces(self, guest: Guest) -> Mapping[str, str]:
        """Return namespaces of persistent memory by device, for a guest that holds some."""
        if not guest.pmem_paths or self._machine is None:
            return {}
        return self.once_per_pass("pmem", self._machine.pmem_by_device)

    def _refuse_unread(self, unread: Mapping[str, str]) -> None:
        if unread:
            reasons = "; ".join(f"guest {uuid}: {why}" for uuid, why in sorted(unread.items()))
            raise errors.HypervisorUnavailable(
                f"What guests of the hypervisor at {self.settings.uri} hold cannot be seen: "
                f"{reasons}. Look at them with `virsh dumpxml UUID`."
            )

    def _ask_for_guests(self, question: Callable[[], _Answer]) -> _Answer:
        try:
            return question()
        except DiscoveryError as error:
            raise errors.HypervisorUnavailable(f"{error}.") from error

    def _ask(self, question: Callable[[], _Answer]) -> _Answer:
        try:
            return question()
        except HypervisorUnreachable as error:
            hint = "`compute-agent doctor` looks for the reason"
            raise errors.VirtDriverNotReady(f"{error}; {hint}.") from error
        except DiscoveryError as error:
            raise errors.VirtDriverNotReady(f"{error}.") from error
