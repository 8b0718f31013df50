"""The connection to a real libvirt daemon that is killed, paused, restarted or not there."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import libvirt
import pytest

from compute_agent.discovery.errors import CallFailed, CallUnsupported, HypervisorUnreachable
from compute_agent.discovery.libvirt.connection import Keepalive, LibvirtConnection
from tests.fixtures.certificates import Certificates
from tests.fixtures.clocks import ManualClock
from tests.fixtures.libvirtd import Libvirtd, running_libvirtd
from tests.fixtures.ports import free_port
from tests.functional.agent.processes import eventually as wait_until
from tests.integration.libvirt.connections import (
    GUEST,
    Changes,
    eventually,
    guests,
    hostname,
    start_guest,
)

pytestmark = pytest.mark.waiting

QUICK = Keepalive(interval=1, count=1)


# --- a daemon that ends ---------------------------------------------------------------------------


def test_a_killed_daemon_is_reported_and_its_successor_lists_the_guests_again(
    libvirtd: Libvirtd, connect: Callable[..., LibvirtConnection]
) -> None:
    connection = connect(libvirtd.uri)
    start_guest(connection)
    # a daemon killed within half a second of a start may lose the guest's monitor
    time.sleep(1.0)
    libvirtd.kill()
    with pytest.raises(HypervisorUnreachable):
        guests(connection)
    libvirtd.start()
    assert eventually(lambda: guests(connection)) == ["tiny"]


def test_a_daemon_that_is_restarted_in_order_keeps_its_guests(
    libvirtd: Libvirtd, connect: Callable[..., LibvirtConnection]
) -> None:
    connection = connect(libvirtd.uri)
    start_guest(connection)
    libvirtd.terminate()
    libvirtd.start()
    assert eventually(lambda: guests(connection)) == ["tiny"]


def test_an_object_of_a_lost_connection_is_no_failure_of_the_new_one(
    libvirtd: Libvirtd, connect: Callable[..., LibvirtConnection]
) -> None:
    connection = connect(libvirtd.uri)
    start_guest(connection)
    domain = connection.call("lookupByName", lambda c: c.lookupByName("tiny"))
    libvirtd.terminate()
    libvirtd.start()
    eventually(lambda: hostname(connection))
    with pytest.raises(HypervisorUnreachable):
        connection.call("XMLDesc", lambda _: domain.XMLDesc())


def test_a_daemon_that_comes_later_is_connected_to(
    libvirtd: Libvirtd, connect: Callable[..., LibvirtConnection]
) -> None:
    libvirtd.terminate()
    connection = connect(libvirtd.uri)
    with pytest.raises(HypervisorUnreachable, match="cannot connect to libvirt at "):
        hostname(connection)
    libvirtd.start()
    assert eventually(lambda: hostname(connection))


def test_a_daemon_that_is_down_is_not_connected_to_before_the_back_off_is_over(
    libvirtd: Libvirtd, connect: Callable[..., LibvirtConnection]
) -> None:
    clock = ManualClock(1000.0)
    connection = connect(libvirtd.uri, clock=clock)
    libvirtd.terminate()
    for pause in (0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0):
        with pytest.raises(HypervisorUnreachable):
            hostname(connection)
        libvirtd.start()
        clock.now += pause - 0.1
        with pytest.raises(HypervisorUnreachable, match="cannot connect to libvirt"):
            hostname(connection)
        libvirtd.terminate()
        clock.now += 0.1
    libvirtd.start()
    clock.now += 10.0
    assert hostname(connection)


def test_a_daemon_is_started_by_the_first_connection(
    libvirtd: Libvirtd, connect: Callable[..., LibvirtConnection]
) -> None:
    libvirtd.terminate()
    with libvirtd.start_on_connection():
        assert hostname(connect(libvirtd.uri))


def test_connections_that_were_lost_leave_no_file_open(
    libvirtd: Libvirtd,
    connect: Callable[..., LibvirtConnection],
    watch: Callable[[LibvirtConnection], Changes],
) -> None:
    connection = connect(libvirtd.uri)
    changes = watch(connection)
    changes.wait_for("libvirt is back")

    def lose() -> None:
        changes.seen.clear()
        libvirtd.kill()
        libvirtd.start()
        eventually(lambda: hostname(connection))
        changes.wait_for("libvirt is back")

    def open_files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    lose()
    files, losses = open_files(), 5
    for _ in range(losses):
        lose()
    # kept registrations would keep one of each; of many libvirt 9 itself keeps one now and then
    wait_until(lambda: open_files() < files + losses, f"less than {files + losses} open files")


# --- a daemon that hangs --------------------------------------------------------------------------


def test_a_paused_daemon_is_noticed_by_keepalive(
    libvirtd: Libvirtd, connect: Callable[..., LibvirtConnection]
) -> None:
    connection = connect(libvirtd.uri, keepalive=QUICK)
    hostname(connection)
    libvirtd.pause()
    with pytest.raises(HypervisorUnreachable, match="keepalive"):
        hostname(connection)
    libvirtd.resume()
    assert eventually(lambda: hostname(connection))


def test_the_keepalive_of_a_connection_bounds_a_hang_to_twenty_seconds() -> None:
    keepalive = Keepalive()
    assert keepalive.interval * (keepalive.count + 1) == 20


def test_a_call_to_a_paused_daemon_is_given_up_after_the_deadline_and_shown_while_it_hangs(
    libvirtd: Libvirtd, connect: Callable[..., LibvirtConnection]
) -> None:
    connection = connect(libvirtd.uri, timeout=0.5)
    eventually(lambda: hostname(connection))
    libvirtd.pause()
    for _ in range(3):
        with pytest.raises(HypervisorUnreachable, match="getHostname has not returned since"):
            hostname(connection)
    assert [(call.source, call.call) for call in connection.calls.hanging()] == [
        (f"libvirt at {libvirtd.uri}", "getHostname")
    ]
    libvirtd.resume()
    assert eventually(lambda: hostname(connection))
    # the threads of those that were given up end behind it
    wait_until(lambda: connection.calls.hanging() == (), "no call that hangs")


def test_opening_a_connection_to_a_paused_daemon_is_given_up(
    libvirtd: Libvirtd, connect: Callable[..., LibvirtConnection]
) -> None:
    libvirtd.pause()
    connection = connect(libvirtd.uri, timeout=0.5)
    with pytest.raises(HypervisorUnreachable, match="open has not returned since"):
        hostname(connection)
    libvirtd.resume()
    assert eventually(lambda: hostname(connection))


def test_a_connection_to_a_paused_daemon_is_closed_without_waiting_for_it(
    libvirtd: Libvirtd, connect: Callable[..., LibvirtConnection]
) -> None:
    connection = connect(libvirtd.uri, timeout=0.5)
    eventually(lambda: hostname(connection))
    libvirtd.pause()
    connection.close()
    assert [call.call for call in connection.calls.hanging()] == ["close"]


# --- other ways to a daemon -----------------------------------------------------------------------


def test_a_read_only_socket_answers_questions_and_refuses_changes(
    libvirtd: Libvirtd, connect: Callable[..., LibvirtConnection]
) -> None:
    connection = connect(libvirtd.read_only_uri, read_only=True)
    assert hostname(connection)
    with pytest.raises(CallFailed) as refused:
        connection.call("defineXML", lambda c: c.defineXML(GUEST))
    assert refused.value.code == libvirt.VIR_ERR_OPERATION_DENIED


def test_libvirts_test_driver_is_connected_to_without_keepalive(
    connect: Callable[..., LibvirtConnection],
) -> None:
    connection = connect("test:///default")
    assert guests(connection) == ["test"]
    with pytest.raises(CallUnsupported):
        connection.call("getMemoryParameters", lambda c: c.getMemoryParameters())


def test_a_hypervisor_is_reached_over_tls(
    libvirt_run_directory: Path, tmp_path: Path, connect: Callable[..., LibvirtConnection]
) -> None:
    certificates = Certificates(tmp_path / "pki")
    certificates.make()
    port = free_port()
    settings = "\n".join(
        (
            'listen_tls = 1\nlisten_addr = "127.0.0.1"\nauth_tls = "none"',
            f'tls_port = "{port}"\nca_file = "{certificates.authority}"',
            f'cert_file = "{certificates.certificate("server")}"',
            f'key_file = "{certificates.key("server")}"\n',
        )
    )
    with running_libvirtd(libvirt_run_directory, settings=settings, arguments=("--listen",)):
        uri = f"qemu+tls://localhost:{port}/system?pkipath={certificates.directory}"
        # the daemon accepts on its own socket a moment before it does on this one
        assert eventually(lambda: hostname(connect(uri)))


def test_a_uri_without_a_hypervisor_is_named_in_the_error(
    connect: Callable[..., LibvirtConnection],
) -> None:
    uri = f"qemu+tcp://127.0.0.1:{free_port()}/system"
    with pytest.raises(
        HypervisorUnreachable, match=r"cannot connect to libvirt at qemu\+tcp://127"
    ):
        hostname(connect(uri))
