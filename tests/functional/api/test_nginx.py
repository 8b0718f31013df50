"""The sample of etc/placement-nginx.conf, in the nginx that is installed."""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests

from tests.fixtures.ports import free_port
from tests.functional.agent.processes import eventually

from .served import ADMIN, ServerProcess

SAMPLE = Path(__file__).parents[3] / "etc" / "placement-nginx.conf"
NGINX = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin")

pytestmark = pytest.mark.skipif(
    NGINX is None, reason="nginx is not installed (Debian: apt install nginx-light)"
)


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[ServerProcess]]:
    with contextlib.ExitStack() as stack:
        started = []
        for name in ("one", "two"):
            directory = tmp_path / name
            directory.mkdir()
            config = (
                f"[placement_database]\nconnection = sqlite:///{tmp_path}/placement.db\n"
                "[oslo_middleware]\nenable_proxy_headers_parsing = true\n"
                "[placement_server]\nhealthcheck_path = /-/healthy\n"
            )
            started.append(ServerProcess(directory, "--workers", "1", config=config))
            stack.callback(started[-1].stop)
        yield started


def adapted(directory: Path, servers: list[ServerProcess], port: int) -> Path:
    """The sample with ports and files of this test; all else as it is."""
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=placement.example.org", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(directory / "key.pem"), "-out", str(directory / "cert.pem")),
        ],
        capture_output=True,
        check=True,
    )
    text = SAMPLE.read_text().replace("/etc/placement/", f"{directory}/")
    text, count = re.subn(r"listen 8778 ssl", f"listen 127.0.0.1:{port} ssl", text)
    assert count == 1
    backends = iter(server.url.removeprefix("http://") for server in servers)
    text, count = re.subn(r"server 127\.0\.0\.1:\d+", lambda _: f"server {next(backends)}", text)
    assert count == len(servers)
    config = directory / "nginx.conf"
    temporary = "".join(
        f"{kind}_temp_path {directory}/{kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    config.write_text(
        f"daemon off;\nworker_processes 1;\npid {directory}/nginx.pid;\nerror_log stderr;\n"
        f"events {{}}\nhttp {{\naccess_log off;\n{temporary}{text}}}\n"
    )
    return config


@pytest.fixture
def proxy(tmp_path: Path, servers: list[ServerProcess]) -> Iterator[str]:
    assert NGINX is not None
    port = free_port()
    config = adapted(tmp_path, servers, port)
    checked = subprocess.run(
        [NGINX, "-t", "-e", "stderr", "-c", str(config)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr
    with (
        (tmp_path / "nginx.log").open("wb") as log,
        subprocess.Popen([NGINX, "-e", "stderr", "-c", str(config)], stderr=log) as process,
    ):
        try:
            deadline = time.monotonic() + 30
            while not _listens(port):
                assert process.poll() is None, (tmp_path / "nginx.log").read_text()
                assert time.monotonic() < deadline
            yield f"https://127.0.0.1:{port}"
        finally:
            process.terminate()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def test_requests_of_one_kept_connection_reach_every_server(
    proxy: str, servers: list[ServerProcess], tmp_path: Path
) -> None:
    # A client with one connection, which nginx keeps.
    with requests.Session() as session:
        sent: dict[str, Any] = {
            "headers": ADMIN,
            "verify": str(tmp_path / "cert.pem"),
            "timeout": 30,
        }
        for number in range(20):
            path = f"/traits?name=in:CUSTOM_{number}"
            assert session.get(f"{proxy}{path}", **sent).status_code == 200

        made = session.put(f"{proxy}/traits/CUSTOM_PROXIED", **sent)
        assert made.headers["location"] == f"{proxy}/traits/CUSTOM_PROXIED"
        assert session.get(f"{proxy}/-/healthy", **sent).status_code == 403
    eventually(lambda: sum(map(_requests_in, servers)) >= 20, "the lines are written")
    shares = [_requests_in(server) for server in servers]
    assert all(shares), shares
    assert sum(shares) == 20


def _requests_in(server: ServerProcess) -> int:
    return server.output.count('"GET /traits?name=in:CUSTOM_')


def test_connections_to_the_servers_are_kept(
    proxy: str, servers: list[ServerProcess], tmp_path: Path
) -> None:
    workers = [psutil.Process(server.process.pid).children()[0] for server in servers]
    certificate = str(tmp_path / "cert.pem")

    def ports() -> set[int]:
        return {
            held.raddr.port
            for worker in workers
            for held in worker.net_connections("tcp")
            if held.raddr and held.status == psutil.CONN_ESTABLISHED
        }

    for _ in range(4):
        requests.get(f"{proxy}/traits", headers=ADMIN, verify=certificate, timeout=30)
    before = ports()
    for _ in range(6):
        requests.get(f"{proxy}/traits", headers=ADMIN, verify=certificate, timeout=30)
    assert before
    assert ports() == before


HEAD = b"POST /resource_providers HTTP/1.1\r\nHost: x\r\nX-Auth-Token: admin\r\n"


@pytest.mark.parametrize(
    "beginning",
    [HEAD, HEAD + b"Content-Type: application/json\r\nContent-Length: 100000\r\n\r\n{"],
    ids=["heads", "bodies"],
)
def test_slow_clients_wait_at_the_proxy(
    beginning: bytes, proxy: str, servers: list[ServerProcess], tmp_path: Path
) -> None:
    trusting = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
    address = ("127.0.0.1", int(proxy.rpartition(":")[2]))
    with contextlib.ExitStack() as stack:
        for _ in range(40):
            connection = stack.enter_context(socket.create_connection(address, timeout=30))
            secured = stack.enter_context(
                trusting.wrap_socket(connection, server_hostname="127.0.0.1")
            )
            secured.sendall(beginning)
        for _ in range(10):
            answer = requests.get(
                f"{proxy}/traits", headers=ADMIN, verify=str(tmp_path / "cert.pem"), timeout=30
            )
            assert answer.status_code == 200
        for server in servers:
            (worker,) = psutil.Process(server.process.pid).children()
            assert len(_served(worker)) <= 2, "slow clients have no connection to a server"


def _served(worker: psutil.Process) -> list[Any]:
    return [
        held
        for held in worker.net_connections("tcp")
        if held.raddr and held.status == psutil.CONN_ESTABLISHED
    ]
