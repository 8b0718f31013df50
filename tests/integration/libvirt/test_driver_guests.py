"""The driver's answers about guests: one look for a pass, and none that claims too much."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import libvirt
import pytest

from compute_agent import errors
from compute_agent.discovery.libvirt.connection import LibvirtConnection
from compute_agent.virt.libvirt.driver import LibvirtDriver
from tests.fixtures.libvirt_guests import pinned
from tests.integration.libvirt.hosts import Host, hypervisor_host

_Result = TypeVar("_Result")


class WatchedConnection(LibvirtConnection):
    """Counts calls by name, and cuts off the description of one guest."""

    def __init__(self, uri: str, damaged: str = "") -> None:
        super().__init__(uri)
        self.counts: Counter[str] = Counter()
        self._damaged = damaged

    def call(self, name: str, function: Callable[[libvirt.virConnect], _Result]) -> _Result:
        self.counts[name] += 1
        result = super().call(name, function)
        if self._damaged and self._damaged in name and isinstance(result, str):
            return result[:-20]  # type: ignore[return-value]
        return result


@pytest.fixture
def host(libvirt_run_directory: Path, tmp_path: Path) -> Iterator[Host]:
    with hypervisor_host(libvirt_run_directory, tmp_path) as of_the_test:
        yield of_the_test


def test_a_pass_that_reshapes_describes_each_guest_once(host: Host) -> None:
    own = host.define(pinned(1), vcpu="<vcpu>1</vcpu>")
    guests = [own, host.define(), host.define()]
    host.passes()
    host.claim(own, {"": {"VCPU": 1}})
    agent = host.start("[compute]\ncpu_shared_set = 0\ncpu_dedicated_set = 1\n")
    watched = WatchedConnection(host.daemon.uri)
    agent.driver.connection = watched
    assert agent.run().completed
    assert host.held(own) == {"": {"PCPU": 1}}
    assert watched.counts["listAllDomains"] == 1
    assert [watched.counts[f"XMLDesc of guest {guest}"] for guest in guests] == [1, 1, 1]
    watched.close()


def test_all_guests_are_looked_at_once_where_all_are_asked_for(host: Host) -> None:
    guests = [host.define(pinned(1)) for _ in range(3)]
    driver: LibvirtDriver = host.start().driver
    watched = WatchedConnection(host.daemon.uri)
    driver.connection = watched
    assert (driver.get_devices_of_instances() or {}).keys() == set(guests)
    assert watched.counts["listAllDomains"] == 1
    assert driver.list_instance_uuids() == sorted(guests)
    assert sum(watched.counts[f"XMLDesc of guest {guest}"] for guest in guests) == 3
    watched.close()


def test_a_guest_that_cannot_be_understood_is_neither_gone_nor_without_devices(host: Host) -> None:
    odd, plain = host.define(pinned(0)), host.define(pinned(1))
    driver: LibvirtDriver = host.start().driver
    watched = WatchedConnection(host.daemon.uri, damaged=odd)
    driver.connection = watched

    def assert_known() -> None:
        assert driver.list_instance_uuids() == sorted([odd, plain])
        seen = driver.get_instance_devices(plain)
        assert seen is not None
        assert seen.pinned_cpus == (1,)
        with pytest.raises(errors.HypervisorUnavailable, match=odd):
            driver.get_instance_devices(odd)
        with pytest.raises(errors.HypervisorUnavailable, match=odd):
            driver.get_devices_of_instances()

    assert_known()
    with driver.one_reading(host.name):
        assert_known()
    watched.close()


def test_a_guest_that_is_gone_has_no_devices_and_without_libvirt_nothing_is_known(
    host: Host,
) -> None:
    guest = host.define()
    driver: LibvirtDriver = host.start().driver
    host.end(guest)
    assert driver.get_instance_devices(guest) is None
    assert driver.list_instance_uuids() == []
    host.daemon.kill()
    for question in (
        driver.list_instance_uuids,
        driver.get_devices_of_instances,
        lambda: driver.get_instance_devices(guest),
    ):
        with pytest.raises(errors.HypervisorUnavailable):
            question()
