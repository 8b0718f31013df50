"""The connection to a real libvirt daemon that is killed, paused, restarted or not there."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import libvirt
import pytest

from compute_agent.discovery.errors import CallFailed, CallUnsupported, HypervisorUnreachable
from compute_agent.discovery.libvirt.connection import Keepalive, LibvirtConnection
from compute_agent.discovery.libvirt.events import HypervisorEvents
from tests.fixtures.certificates import Certificates
from tests.fixtures.libvirtd import PATIENCE, Libvirtd, running_libvirtd
from tests.fixtures.placement import free_port

GUEST = """
<domain type='qemu'>
  <name>tiny</name><memory unit='MiB'>64</memory><vcpu>1</vcpu>
  <os><type arch='x86_64' machine='q35'>hvm</type></os>
</domain>"""
QUICK = Keepalive(interval=1, count=1)


class Clock:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Changes:
    """What a watcher reported."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self.seen: list[str] = []

    def __call__(self, what: str) -> None:
        with self._condition:
            self.seen.append(what)
            self._condition.notify_all()

    def wait_for(self, words: str) -> None:
        with self._condition:
            assert self._condition.wait_for(
                lambda: any(words in what for what in self.seen), PATIENCE
            ), self.seen


@pytest.fixture
def connect() -> Iterator[Callable[..., LibvirtConnection]]:
    """Makes connections, closed in the end."""
    made: list[LibvirtConnection] = []

    def make(uri: str, **options: Any) -> LibvirtConnection:
        made.append(LibvirtConnection(uri, **options))
        return made[-1]

    yield make
    for connection in made:
        connection.close()


@pytest.fixture
def watch() -> Iterator[Callable[[LibvirtConnection], Changes]]:
    """Watches connections, until the end of the test."""
    watchers: list[HypervisorEvents] = []

    def begin(connection: LibvirtConnection) -> Changes:
        changes = Changes()
        watchers.append(HypervisorEvents(connection, changes, quiet=0.01))
        watchers[-1].start()
        return changes

    yield begin
    for watcher in watchers:
        watcher.stop()


def hostname(connection: LibvirtConnection) -> str:
    return connection.call("getHostname", lambda c: str(c.getHostname()))


def guests(connection: LibvirtConnection) -> list[str]:
    return connection.call(
        "listAllDomains", lambda c: sorted(domain.name() for domain in c.listAllDomains())
    )


def start_guest(connection: LibvirtConnection) -> None:
    connection.call("createXML", lambda c: c.createXML(GUEST).name())


def eventually(call: Callable[[], Any]) -> Any:
    """Return what `call` returns once there is a connection."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return call()
        except HypervisorUnreachable:
            assert time.monotonic() < deadline
            time.sleep(0.05)


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
    clock = Clock()
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
    watch(connection)

    def lose() -> int:
        libvirtd.kill()
        libvirtd.start()
        eventually(lambda: hostname(connection))
        return len(list(Path("/proc/self/fd").iterdir()))

    files = lose()
    assert [lose() for _ in range(3)] == [files] * 3


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
    assert connection.calls.hanging() == ()


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


# --- events ---------------------------------------------------------------------------------------


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
