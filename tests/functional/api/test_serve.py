"""placement-server serve: over real sockets, and with signals."""

import contextlib
import os
import select
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import psutil
import pytest
import requests

from compute_agent.programs.systemd import NoticeSocket
from tests.fixtures import programs
from tests.fixtures.programs import Process
from tests.functional.agent.processes import eventually

from .served import ADMIN, ServerProcess


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(
        tmp_path_factory.mktemp("served"),
        *("--workers", "2", "--threads", "4"),
        config="[placement_server]\nmetrics_path = /-/metrics\nhealthcheck_path = /-/healthy\n",
        console_script=True,
    ) as server:
        yield server


def test_it_tells_the_real_port_and_answers_there(served: ServerProcess) -> None:
    assert served.url.startswith("http://127.0.0.1:")
    assert not served.url.endswith(":0")
    answer = served.ask("GET", "/resource_providers")
    assert answer.status_code == 200
    assert answer.headers["openstack-api-version"] == "placement 1.39"


def test_the_line_with_its_address_is_whole_also_without_a_buffer(tmp_path: Path) -> None:
    # a packet for each write: the lines of another worker come between two of them
    reader, writer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    reader.settimeout(60)
    options = ("--port", "0", "--workers", "1", "--auth-strategy", "noauth2", "--sync-database")
    with reader, writer, writer.makefile("wb") as output:
        server = programs.start(
            "placement-server",
            *("serve", *options, "--database-url", f"sqlite:///{tmp_path}/placement.db"),
            output=output,
            environment=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
        try:
            while b"placement-server: listening on" not in (packet := reader.recv(65536)):
                pass
        finally:
            server.kill()
            server.wait()
    assert packet.startswith(b"placement-server: listening on http://127.0.0.1:")
    assert packet.endswith(b"\n")


@contextlib.contextmanager
def announced(directory: Path, output: IO[Any], workers: int) -> Iterator[tuple[Process, str]]:
    """A server as of a service manager, and the URL that this hears of."""
    options = ("--port", "0", "--workers", str(workers), "--auth-strategy", "noauth2")
    trial = ("--sync-database", "--database-url", f"sqlite:///{directory}/placement.db")
    with NoticeSocket() as ready:
        server = programs.start(
            "placement-server",
            *("serve", *options, *trial),
            output=output,
            environment=os.environ | {"NOTIFY_SOCKET": ready.address},
        )
        try:
            notice = eventually(ready.ready, "ready")
            assert notice is not None
            yield server, notice.values["STATUS"].removeprefix("listening on ")
        finally:
            server.kill()
            server.wait()


def test_the_service_manager_hears_when_it_answers_and_a_reload_keeps_answering(
    tmp_path: Path,
) -> None:
    with (tmp_path / "log").open("wb") as output, announced(tmp_path, output, 1) as (server, url):
        for _ in range(2):
            assert requests.get(f"{url}/", timeout=30).status_code == 200
            os.kill(server.pid, signal.SIGHUP)
        assert server.poll() is None


def test_a_reload_with_a_policy_file_that_cannot_be_used_keeps_the_rules_and_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text('"placement:traits:list": "!"\n')
    config = f"policy_file = {policy}\n[placement_server]\nmetrics_path = /-/metrics\n"

    def is_read() -> bool:
        text = requests.get(f"{server.url}/-/metrics", timeout=30).text
        return f'placement_configuration_read{{file="{policy}"}} 1.0' in text

    def last_line() -> str:
        with contextlib.suppress(BlockingIOError):
            while True:
                lines.append(notices.receive(socket.MSG_DONTWAIT).values.get("STATUS", ""))
        return lines[-1] if lines else ""

    arguments = ("--workers", "1")
    lines: list[str] = []
    with contextlib.ExitStack() as stack:
        notices = stack.enter_context(NoticeSocket())
        monkeypatch.setenv("NOTIFY_SOCKET", notices.address)
        server = stack.enter_context(
            ServerProcess(tmp_path, *arguments, config=config, console_script=True)
        )
        eventually(is_read, "the policy file in the metrics")
        (worker,) = psutil.Process(server.process.pid).children()
        policy.write_text('"placement:traits:list": [role: : \n')
        server.process.send_signal(signal.SIGHUP)
        eventually(lambda: not worker.is_running(), "the end of the worker")
        traits = f"{server.url}/traits"
        eventually(lambda: requests.get(traits, headers=ADMIN, timeout=30).status_code == 403, "it")
        assert not is_read()
        fault = f"; the policy file {policy} cannot be used, and the rules before it are in force"
        eventually(lambda: last_line().endswith(fault), "the line of systemctl status")
        policy.write_text("{}\n")
        eventually(is_read, "the policy file that is corrected")
        eventually(lambda: last_line() == f"listening on {server.url}", "the line without it")
        assert requests.get(traits, headers=ADMIN, timeout=30).status_code == 200


def test_a_stop_during_a_reload_ends_as_any_other(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, "--workers", "1") as server:
        server.process.send_signal(signal.SIGHUP)
        eventually(lambda: "Respawning worker" in server.output, "the reload")
        assert server.stop() == 0


def test_a_stop_does_not_wait_for_a_log_that_nobody_reads(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    with open(reader), open(writer) as output, announced(tmp_path, output, 2) as (server, url):
        with requests.Session() as session:
            while select.select([], [output], [], 0)[1]:
                assert session.get(url, timeout=30).status_code == 200
        server.send_signal(signal.SIGTERM)
        assert server.wait(timeout=30) == 0


def test_workers_share_the_memory_of_what_is_loaded(served: ServerProcess) -> None:
    for worker in psutil.Process(served.process.pid).children():
        memory = worker.memory_full_info()
        assert memory.uss < 0.7 * memory.rss


def raw(served: ServerProcess, head: str, body: bytes = b"") -> tuple[bytes, bytes]:
    request = f"{head}\r\nHost: x\r\nX-Auth-Token: admin\r\nConnection: close\r\n\r\n"
    head_received, _, body_received = served.exchange(request.encode() + body).partition(
        b"\r\n\r\n"
    )
    return head_received, body_received


def test_a_missing_content_type_reaches_the_application_as_missing(served: ServerProcess) -> None:
    _, body = raw(served, "POST /resource_providers HTTP/1.1\r\nContent-Length: 2", b"{}")
    assert b"content-type header required when content-length > 0" in body
    _, body = raw(served, "POST /resource_providers HTTP/1.1")
    assert b"The media type None is not supported" in body


def test_a_query_of_60_000_characters_reaches_the_application(served: ServerProcess) -> None:
    query = "x" * 60_000
    head, _ = raw(served, f"GET /resource_providers?name={query} HTTP/1.1")
    assert head.startswith(b"HTTP/1.1 200 ")
    _, body = raw(served, f"GET /resource_providers?{query}=1 HTTP/1.1")
    assert b"Invalid query string parameters: " in body


def test_answers_without_a_body_have_length_zero_or_none_and_no_type(served: ServerProcess) -> None:
    answers = [served.ask("PUT", "/traits/CUSTOM_SERVED") for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 204]
    for answer in answers:
        assert "content-type" not in answer.headers
        assert answer.headers.get("content-length", "0") == "0"
        assert answer.headers["location"] == f"{served.url}/traits/CUSTOM_SERVED"


def test_forwarded_headers_are_ignored_by_default(served: ServerProcess) -> None:
    forwarded = {"X-Forwarded-Proto": "https", "X-Forwarded-Host": "evil.example.com"}
    answer = requests.put(
        f"{served.url}/traits/CUSTOM_FORWARDED", headers={**ADMIN, **forwarded}, timeout=30
    )
    assert answer.headers["location"].startswith(served.url)


def test_every_request_is_in_the_log_with_its_id(served: ServerProcess) -> None:
    answer = served.ask("GET", "/traits?name=in:LOGGED")
    request_id = answer.headers["x-openstack-request-id"]
    wanted = '127.0.0.1 "GET /traits?name=in:LOGGED" status: 200'
    eventually(
        lambda: any(
            request_id in line and wanted in line and line.rstrip().endswith("microversion: 1.39")
            for line in served.output.splitlines()
        ),
        "the line is written",
    )


LOGS_AT_THE_END = """
import sys
from placement_server.cmd.serve import main
from placement_server.middleware import observation
observation._DELAY = 600
sys.exit(main())
"""


def test_lines_that_wait_are_written_before_a_worker_ends(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path, "--workers", "1", program=LOGS_AT_THE_END)
    answers = [server.ask("GET", "/traits") for _ in range(3)]
    assert server.stop() == 0
    for answer in answers:
        assert answer.headers["x-openstack-request-id"] in server.output


def test_metrics_add_up_over_the_workers_and_health_needs_no_token(served: ServerProcess) -> None:
    assert requests.get(f"{served.url}/-/healthy", timeout=30).status_code == 200
    for _ in range(10):
        served.ask("GET", "/usages?project_id=p")
    counted = 'placement_http_requests_total{method="GET",route="/usages",status="200"} 10.0'
    eventually(
        lambda: counted in requests.get(f"{served.url}/-/metrics", timeout=30).text,
        "all workers have counted",
    )


def _answer(server: ServerProcess, path: str) -> requests.Response:
    """What the only worker answers once it listens; before, the connection is refused."""
    answers: list[requests.Response] = []

    def ask() -> bool:
        with contextlib.suppress(requests.ConnectionError):
            answers.append(requests.get(f"{server.url}{path}", timeout=30))
        return bool(answers)

    eventually(ask, "an answer")
    return answers[0]


def test_the_metrics_outlive_a_worker_that_is_told_to_end(tmp_path: Path) -> None:
    config = "[placement_server]\nmetrics_path = /m\n"
    server = ServerProcess(tmp_path, "--workers", "1", config=config, console_script=True)
    try:
        server.ask("GET", "/usages?project_id=p")
        (worker,) = psutil.Process(server.process.pid).children()
        worker.terminate()
        eventually(lambda: not psutil.pid_exists(worker.pid), "the worker ends")
        text = _answer(server, "/m").text
        assert 'method="GET",route="/usages",status="200"} 1.0' in text
    finally:
        assert server.stop() == 0


def test_nothing_is_left_of_the_metrics_when_the_server_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    config = "[placement_server]\nmetrics_path = /m\n"
    server = ServerProcess(tmp_path, "--workers", "2", config=config, console_script=True)
    kept = list(temporary.glob("placement-*"))
    assert server.stop() == 0
    assert len(kept) == 1
    assert not list(temporary.glob("placement-*"))


def test_a_trial_needs_options_only(tmp_path: Path) -> None:
    trial = ("--database-url", f"sqlite:///{tmp_path}/trial.db", "--sync-database")
    server = ServerProcess(tmp_path, *trial, *("--auth-strategy", "noauth2"), configured=False)
    try:
        assert server.ask("GET", "/traits").status_code == 200
    finally:
        assert server.stop() == 0
