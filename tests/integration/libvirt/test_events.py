"""Events of a real libvirt daemon, also of one that is restarted."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from compute_agent.discovery.libvirt.connection import LibvirtConnection
from tests.fixtures.libvirtd import PATIENCE, Libvirtd
from tests.integration.libvirt.connections import Changes, hostname, start_guest


def test_guests_that_come_and_go_are_reported(
    libvirtd: Libvirtd,
    connect: Callable[..., LibvirtConnection],
    watch: Callable[[LibvirtConnection], Changes],
) -> None:
    connection = connect(libvirtd.uri)
    changes = watch(connection)
    changes.wait_for("libvirt is back")
    start_guest(connection)
    changes.wait_for("started")
    connection.call("destroy", lambda c: c.lookupByName("tiny").destroy())
    changes.wait_for("stopped")


def test_a_connection_that_is_open_already_is_watched(
    connect: Callable[..., LibvirtConnection], watch: Callable[[LibvirtConnection], Changes]
) -> None:
    connection = connect("test:///default")
    hostname(connection)
    changes = watch(connection)

    def restart_guest() -> bool:
        connection.call("destroy", lambda c: c.lookupByName("test").destroy())
        connection.call("create", lambda c: c.lookupByName("test").create())
        return bool(changes.seen)

    deadline = time.monotonic() + PATIENCE
    while not restart_guest():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_events_are_reported_again_after_a_daemon_was_restarted(
    libvirtd: Libvirtd,
    connect: Callable[..., LibvirtConnection],
    watch: Callable[[LibvirtConnection], Changes],
) -> None:
    connection = connect(libvirtd.uri)
    changes = watch(connection)
    changes.wait_for("libvirt is back")
    changes.seen.clear()
    libvirtd.kill()
    libvirtd.start()
    changes.wait_for("libvirt is back")
    start_guest(connection)
    changes.wait_for("started")


def test_a_daemon_that_stays_away_is_reported(
    libvirtd: Libvirtd,
    connect: Callable[..., LibvirtConnection],
    watch: Callable[[LibvirtConnection], Changes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("compute_agent.discovery.libvirt.events.RESTART", 0.0)
    connection = connect(libvirtd.uri)
    hostname(connection)
    changes = watch(connection)
    libvirtd.kill()
    changes.wait_for("libvirt is away: cannot connect")


def test_devices_that_come_and_go_are_reported(
    connect: Callable[..., LibvirtConnection], watch: Callable[[LibvirtConnection], Changes]
) -> None:
    connection = connect("test:///default")
    changes = watch(connection)
    changes.wait_for("libvirt is back")
    # the one kind of device that libvirt's test driver makes
    connection.call(
        "nodeDeviceCreateXML",
        lambda c: c.nodeDeviceCreateXML(
            "<device><parent>scsi_host1</parent><capability type='scsi_host'>"
            "<capability type='fc_host'><wwnn>2000000012341234</wwnn>"
            "<wwpn>1000000012341234</wwpn></capability></capability></device>",
            0,
        ),
    )
    changes.wait_for("device scsi_host12 came or went")
