"""The guests of a real libvirtd: whatever state they are in and whoever made them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import libvirt
import pytest

from compute_agent.discovery.libvirt import guests
from compute_agent.discovery.libvirt.connection import LibvirtConnection
from compute_agent.discovery.libvirt.facts import Guest
from compute_agent.discovery.pci_address import pci_address
from compute_agent.virt.libvirt.holdings import holdings
from tests.data.machines import make
from tests.fixtures.allocations import new_uuid
from tests.fixtures.libvirt_guests import (
    function_of_host,
    guest_xml,
    interface_of_host,
    mediated_device,
    on_cell,
    pinned,
)
from tests.fixtures.libvirtd import Libvirtd, running_libvirtd

_Result = TypeVar("_Result")


class Hypervisor:
    """A libvirtd, as the test sees it and as the agent does."""

    def __init__(self, daemon: Libvirtd) -> None:
        self.libvirt = libvirt.open(daemon.uri)
        self.connection = LibvirtConnection(daemon.uri)

    def start(self, *elements: str, vcpu: str = "<vcpu>2</vcpu>") -> libvirt.virDomain:
        """A guest that is gone when it ends."""
        return self.libvirt.createXML(guest_xml(new_uuid(), *elements, vcpu=vcpu))

    def define(
        self, *elements: str, uuid: str | None = None, devices: str = ""
    ) -> libvirt.virDomain:
        """A guest that is shut off."""
        return self.libvirt.defineXML(guest_xml(uuid or new_uuid(), *elements, devices=devices))

    def guest(self, domain: libvirt.virDomain) -> Guest:
        return guests.read(self.connection).guests[domain.UUIDString()]

    def close(self) -> None:
        self.connection.close()
        self.libvirt.close()


@pytest.fixture
def hypervisor(libvirtd: Libvirtd) -> Iterator[Hypervisor]:
    of_the_test = Hypervisor(libvirtd)
    yield of_the_test
    of_the_test.close()


def test_guests_are_listed_in_every_state_until_they_are_gone(hypervisor: Hypervisor) -> None:
    shut_off, transient, paused = hypervisor.define(), hypervisor.start(), hypervisor.start()
    paused.suspend()
    reading = guests.read(hypervisor.connection)
    assert {uuid: guest.is_running for uuid, guest in reading.guests.items()} == {
        shut_off.UUIDString(): False,
        transient.UUIDString(): True,
        paused.UUIDString(): True,
    }
    assert guests.uuids(hypervisor.connection) == list(reading.guests)
    assert not reading.unread_guests
    gone = paused.UUIDString()
    paused.destroy()
    assert gone not in guests.uuids(hypervisor.connection)
    assert guests.read_one(hypervisor.connection, gone) is None


def test_one_guest_is_described_as_among_all(hypervisor: Hypervisor) -> None:
    domain = hypervisor.start(pinned(0, 1), on_cell(0))
    alone = guests.read_one(hypervisor.connection, domain.UUIDString())
    assert alone == hypervisor.guest(domain)


def test_a_running_guest_has_the_cpus_the_cell_and_the_memory_that_it_was_started_with(
    hypervisor: Hypervisor,
) -> None:
    guest = hypervisor.guest(hypervisor.start(pinned(1, 0), on_cell(0)))
    assert guest.vcpu_pins == ((0, 1), (1, 0))
    assert guest.numa_cells == ((0, 2, 32 * 1024),)
    assert (guest.vcpus, guest.memory_kib) == (2, 32 * 1024)


def test_a_pin_that_changes_while_a_guest_runs_is_the_one_that_counts(
    hypervisor: Hypervisor,
) -> None:
    domain = hypervisor.start(pinned(1), vcpu="<vcpu>1</vcpu>")
    domain.pinVcpu(0, (True, False))
    assert holdings(hypervisor.guest(domain)).pinned_cpus == (0,)
    domain.pinVcpu(0, (True, True))
    seen = holdings(hypervisor.guest(domain))
    assert (seen.pinned_cpus, seen.floating_cpus) == ((), (0, 1))


def test_a_definition_for_the_next_start_says_nothing_of_the_guest_that_runs(
    hypervisor: Hypervisor,
) -> None:
    domain = hypervisor.define(pinned(0, 1))
    domain.create()
    hypervisor.define("<cputune><vcpupin vcpu='0' cpuset='1'/></cputune>", uuid=domain.UUIDString())
    assert holdings(hypervisor.guest(domain)).pinned_cpus == (0, 1)
    domain.destroy()
    seen = hypervisor.guest(domain)
    assert not seen.is_running
    assert holdings(seen).pinned_cpus == (1,)


def test_a_guest_without_a_set_may_run_on_every_cpu_that_is_online(hypervisor: Hypervisor) -> None:
    online = guests.online_cpus(hypervisor.connection)
    assert len(online) == hypervisor.libvirt.getInfo()[2]
    assert holdings(hypervisor.guest(hypervisor.start()), online=online).floating_cpus == online
    within = hypervisor.start(vcpu="<vcpu cpuset='1'>2</vcpu>")
    assert holdings(hypervisor.guest(within), online=online).floating_cpus == (1,)


def test_a_guest_that_runs_without_a_definition_is_still_there(hypervisor: Hypervisor) -> None:
    domain = hypervisor.define(pinned(0, 1))
    domain.create()
    domain.undefine()
    assert holdings(hypervisor.guest(domain)).pinned_cpus == (0, 1)


def test_functions_and_pages_of_a_guest_that_is_shut_off_are_seen(
    libvirt_run_directory: Path, tmp_path: Path
) -> None:
    with running_libvirtd(libvirt_run_directory, make("two-cells", tmp_path)) as daemon:
        hypervisor = Hypervisor(daemon)
        domain = hypervisor.define(
            on_cell(1),
            "<memoryBacking><hugepages><page size='2' unit='M' nodeset='0'/></hugepages>"
            "</memoryBacking>",
            devices=function_of_host(pci_address("0000:84:00.0"))
            + interface_of_host(pci_address("0000:81:02.3"))
            + mediated_device(new_uuid()),
        )
        guest = hypervisor.guest(domain)
        hypervisor.close()
    assert guest.pci_addresses == ("0000:81:02.3", "0000:84:00.0")
    assert guest.numa_cells == ((1, 2, 32 * 1024),)
    assert guest.page_size_kib == 2048
    assert len(guest.mdevs) == 1


class RacingConnection(LibvirtConnection):
    """Ends a guest between the list of all and the look at each."""

    def __init__(self, uri: str, end: Callable[[], object]) -> None:
        super().__init__(uri)
        self._end = end

    def call(self, name: str, function: Callable[[libvirt.virConnect], _Result]) -> _Result:
        result = super().call(name, function)
        if name == "listAllDomains":
            self._end()
        return result


def test_a_guest_that_ends_while_it_is_looked_at_is_gone_and_the_others_are_seen(
    hypervisor: Hypervisor, libvirtd: Libvirtd
) -> None:
    ending, staying = hypervisor.start(), hypervisor.define()
    connection = RacingConnection(libvirtd.uri, ending.destroy)
    reading = guests.read(connection)
    connection.close()
    assert list(reading.guests) == [staying.UUIDString()]
    assert not reading.unread_guests


def test_guests_outlive_a_daemon_that_is_killed(hypervisor: Hypervisor, libvirtd: Libvirtd) -> None:
    running, shut_off = hypervisor.start(pinned(0, 1)), hypervisor.define()
    before = guests.read(hypervisor.connection)
    assert len(before.guests) == 2
    libvirtd.kill()
    libvirtd.start()
    again = LibvirtConnection(libvirtd.uri)
    assert guests.read(again) == before
    again.close()
    assert {running.UUIDString(), shut_off.UUIDString()} == set(before.guests)


def test_a_guest_that_is_migrated_is_on_the_other_host_with_what_it_holds_there(
    libvirt_run_directory: Path,
) -> None:
    with (
        running_libvirtd(libvirt_run_directory, hostname="host-a") as one,
        running_libvirtd(libvirt_run_directory, hostname="host-b") as other,
    ):
        source, target = Hypervisor(one), Hypervisor(other)
        domain = source.start(pinned(0, 1), on_cell(0))
        uuid = domain.UUIDString()
        swapped = (
            domain.XMLDesc(libvirt.VIR_DOMAIN_XML_MIGRATABLE)
            .replace("vcpu='0' cpuset='0'", "vcpu='0' cpuset='1'")
            .replace("vcpu='1' cpuset='1'", "vcpu='1' cpuset='0'")
        )
        domain.migrateToURI3(
            other.uri,
            {
                libvirt.VIR_MIGRATE_PARAM_URI: f"unix://{other.directory}/migration",
                libvirt.VIR_MIGRATE_PARAM_DEST_XML: swapped,
            },
            libvirt.VIR_MIGRATE_LIVE | libvirt.VIR_MIGRATE_PEER2PEER,
        )
        assert guests.uuids(source.connection) == []
        there = guests.read(target.connection).guests[uuid]
        source.close()
        target.close()
    assert there.is_running
    assert there.vcpu_pins == ((0, 1), (1, 0))
