"""TLS of the embedded server: which versions, and certificates that change while it runs."""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
import socket
import ssl
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests

from placement_server.http_server.certificates import Certificate, CertificateWatch
from tests.fixtures import programs
from tests.fixtures.certificates import Certificates
from tests.functional.agent.processes import eventually

from .served import ServerProcess

pytestmark = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="openssl makes the certificates (Debian: openssl)"
)


class Pair:
    """The files that the server has, and certificates to put there."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.certificate, self.key = directory / "tls.pem", directory / "tls.key"
        self._made: list[Certificates] = []

    def renew(self, *, is_expired: bool = False) -> Certificates:
        """Put a new certificate there, of an authority of its own."""
        made = Certificates(self._directory / f"authority-{len(self._made)}")
        made.make()
        if is_expired:
            made.date("server", "20200101000000Z", "20200131235959Z")
        self._made.append(made)
        self._replace(self.key, made.key("server").read_bytes())
        self._replace(self.certificate, made.certificate("server").read_bytes())
        return made

    def break_key(self) -> None:
        self._replace(self.key, b"not a key\n")

    def _replace(self, path: Path, content: bytes) -> None:
        fresh = path.with_suffix(".new")
        fresh.write_bytes(content)
        fresh.rename(path)

    @property
    def arguments(self) -> tuple[str, ...]:
        return ("--tls-cert", str(self.certificate), "--tls-key", str(self.key))


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


@pytest.fixture
def serve(tmp_path: Path, pair: Pair) -> Iterator[Callable[[], ServerProcess]]:
    started: list[ServerProcess] = []

    def start() -> ServerProcess:
        started.append(ServerProcess(tmp_path, "--workers", "2", *pair.arguments))
        return started[-1]

    yield start
    for server in started:
        server.stop()


def connect(server: ServerProcess, trusted: Certificates, **limits: ssl.TLSVersion) -> str | None:
    """The version of TLS that client and server agree on.

    :raises ssl.SSLError: there is none, or the certificate is not of the trusted authority.
    """
    context = ssl.create_default_context(cafile=str(trusted.authority))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # old versions are deprecated, which is the point
        if "maximum_version" in limits:
            context.set_ciphers("ALL:@SECLEVEL=0")
            context.minimum_version = ssl.TLSVersion.TLSv1
        for name, version in limits.items():
            setattr(context, name, version)
    with (
        socket.create_connection(server.address, timeout=30) as connection,
        context.wrap_socket(connection, server_hostname="127.0.0.1") as secured,
    ):
        secured.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert secured.recv(12) == b"HTTP/1.1 200"
        return secured.version()


def test_tls_1_2_is_the_oldest_version(serve: Callable[[], ServerProcess], pair: Pair) -> None:
    trusted = pair.renew()
    server = serve()
    assert server.url.startswith("https://")
    assert connect(server, trusted) == "TLSv1.3"
    assert connect(server, trusted, maximum_version=ssl.TLSVersion.TLSv1_2) == "TLSv1.2"
    with pytest.raises((ssl.SSLError, ConnectionError)):
        connect(server, trusted, maximum_version=ssl.TLSVersion.TLSv1_1)


def times_served(server: ServerProcess, trusted: Certificates) -> int:
    """Of 16 connections those with a certificate of this authority."""
    count = 0
    for _ in range(16):
        with contextlib.suppress(OSError):
            connect(server, trusted)
            count += 1
    return count


@pytest.mark.parametrize("told", [False, True])
def test_a_renewed_certificate_is_served_soon(
    serve: Callable[[], ServerProcess], pair: Pair, told: bool
) -> None:
    first = pair.renew()
    server = serve()
    connect(server, first)
    second = pair.renew()
    if told:
        server.process.send_signal(signal.SIGHUP)
    eventually(lambda: times_served(server, second) == 16, "the renewed certificate")
    eventually(lambda: times_served(server, first) == 0, "the end of the old workers")


def test_a_pair_that_cannot_be_used_leaves_the_old_one_and_is_logged(
    serve: Callable[[], ServerProcess], pair: Pair
) -> None:
    first = pair.renew()
    server = serve()
    pair.break_key()
    eventually(lambda: "stays in force" in server.output, "a line in the log")
    assert times_served(server, first) == 16
    second = pair.renew()
    eventually(lambda: times_served(server, second) == 16, "the renewed certificate")
    assert server.output.count("stays in force") <= 2, "the renewal itself may be seen half done"


def test_an_expired_certificate_is_logged_and_in_the_metrics_until_it_is_renewed(
    tmp_path: Path, pair: Pair
) -> None:
    pair.renew(is_expired=True)
    config = "[placement_server]\nmetrics_path = /-/metrics\n"
    arguments = ("--workers", "2", *pair.arguments)
    # what is counted has to be imported after the server has set the metrics up
    with ServerProcess(tmp_path, *arguments, config=config, console_script=True) as server:

        def value(name: str) -> float | None:
            # whichever authority: the certificate is none that a client trusts
            text = requests.get(f"{server.url}/-/metrics", verify=False, timeout=30).text
            found = re.search(f'^placement_{name}{{file="{pair.certificate}"}} (.*)$', text, re.M)
            return None if found is None else float(found[1])

        def days_left() -> float:
            return ((value("tls_certificate_expiry_timestamp_seconds") or 0) - time.time()) / 86400

        assert "expired at 2020-01-31 23:59:59+00:00" in server.output
        assert days_left() < -1000
        pair.break_key()
        eventually(lambda: value("configuration_read") == 0, "the pair that cannot be used")
        pair.renew()
        eventually(lambda: 1.9 < days_left() < 2.1, "the renewed certificate")
        assert value("configuration_read") == 1
        assert server.output.count("expired at") == 1


def watched(pair: Pair, directory: Path) -> tuple[CertificateWatch, list[str | None], list[int]]:
    """Return the watch of a new pair, and in lists the faults it shows and a number per renewal."""
    pair.renew()
    shown: list[str | None] = []
    renewals: list[int] = []
    served = Certificate(pair.certificate, pair.key)
    (copies := directory / "copies").mkdir()
    watch = CertificateWatch(served, served.copy(copies), lambda: renewals.append(1), shown.append)
    return watch, shown, renewals


def test_a_certificate_that_expires_while_it_is_served_is_shown_then_and_its_renewal_too(
    tmp_path: Path, pair: Pair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    watch, shown, renewals = watched(pair, tmp_path)
    watch.look()
    assert shown == []
    now = time.time()
    with monkeypatch.context() as later:
        later.setattr(time, "time", lambda: now + 3 * 86400)
        watch.look()
        watch.look()
    assert [str(fault).count("expired at") for fault in shown] == [1]
    assert caplog.text.count("expired at") == 1
    pair.break_key()
    watch.look()
    assert "cannot be used" in str(shown[-1])
    with monkeypatch.context() as between:
        # as where it is removed just after that
        between.setattr(Path, "exists", lambda _path: True)
        pair.certificate.unlink()
        watch.look()
    assert "No such file" in str(shown[-1])
    pair.renew()
    watch.look()
    assert shown[-1] is None
    assert renewals == [1]


def test_a_renewed_pair_that_may_not_be_read_is_served_once_it_may(
    tmp_path: Path, pair: Pair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    watch, shown, renewals = watched(pair, tmp_path)
    pair.renew()
    with monkeypatch.context() as without_rights:
        without_rights.setattr(Path, "read_bytes", refuse)
        watch.look()
        watch.look()
    assert "Permission denied" in str(shown[-1])
    assert caplog.text.count("Permission denied") == 1
    # chmod changes neither content nor its time
    watch.look()
    assert shown[1:] == [None]
    assert renewals == [1]


OF_VERSION_1 = """\
-----BEGIN CERTIFICATE-----
MIIBFDCBuwIUdnnCZkWaNuYLYFbewuHd3x7DQ7cwCgYIKoZIzj0EAwIwDDEKMAgG
A1UEAwwBeDAgFw0yNjExMjcyMzM1MDFaGA8yMTI2MTEwMzIzMzUwMVowDDEKMAgG
A1UEAwwBeDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABDKXgIgA7myw0ryRALIa
W/p6QKId7TBpR48MmYEuI/QNvdnD1S7rbjEGXbwIlmLmbmMx0+oD3xafQQ5GClgB
kfQwCgYIKoZIzj0EAwIDSAAwRQIgEuTZ/I06FKvfybM3r8qnfsBkTGwFli1MmWe8
lmuIuSUCIQCYyy3+6bgr5qDaSQ0/giR/i1WNmsOgNPwcPHnd+32RkA==
-----END CERTIFICATE-----
"""


def test_a_certificate_of_version_1_is_refused_as_workers_could_not_start(tmp_path: Path) -> None:
    (path := tmp_path / "cert.pem").write_text(OF_VERSION_1)
    with pytest.raises(OSError, match="version 1"):
        Certificate(path, tmp_path / "key.pem").check()


@pytest.mark.parametrize(("days", "text"), [(-1, "not valid before"), (1, None), (3, "expired at")])
def test_a_certificate_is_good_between_its_two_dates(
    tmp_path: Path, days: int, text: str | None
) -> None:
    made = Certificates(tmp_path / "authority")
    made.make()
    certificate = Certificate(made.certificate("server"), made.key("server"))
    fault = certificate.fault(time.time() + days * 86400, certificate.dates())
    assert fault is None if text is None else text in str(fault)


def test_a_request_is_answered_by_a_worker_that_ends_after_failed_handshakes(
    tmp_path: Path, pair: Pair
) -> None:
    trusted = pair.renew()
    server = ServerProcess(tmp_path, "--workers", "1", *pair.arguments)
    for _ in range(2):
        with socket.create_connection(server.address, timeout=30) as connection:
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(64):
                pass
    context = ssl.create_default_context(cafile=str(trusted.authority))
    with (
        socket.create_connection(server.address, timeout=30) as connection,
        context.wrap_socket(connection, server_hostname="127.0.0.1") as secured,
    ):
        secured.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert secured.recv(12) == b"HTTP/1.1 200"
        secured.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n")
        eventually(lambda: server.has_read(secured), "a begun request")
        server.process.send_signal(signal.SIGTERM)
        eventually(lambda: _refuses(server), "a server that refuses clients")
        secured.sendall(b"x")
        assert b"HTTP/1.1 400" in b"".join(iter(lambda: secured.recv(65536), b""))
    assert server.stop() == 0


def _refuses(server: ServerProcess) -> bool:
    try:
        socket.create_connection(server.address, timeout=30).close()
    except ConnectionError:
        return True
    return False


def test_a_pair_that_does_not_match_is_told_at_the_start(tmp_path: Path, pair: Pair) -> None:
    pair.renew()
    pair.break_key()
    done = programs.run(
        "placement-server",
        *("serve", "--port", "0", "--database-url", f"sqlite:///{tmp_path}/x.db", *pair.arguments),
        timeout=60,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("placement-server: The certificate ")
    assert "--tls-key" in done.stderr
    assert "Traceback" not in done.stderr
