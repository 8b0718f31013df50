"""Real processes for tests of the agent: placement-server, compute-agent, and a proxy that lies."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import requests

from compute_agent import errors
from compute_agent.service import local_socket
from tests.fixtures.placement import free_port, wait_for_placement

BIN = Path(sys.executable).parent
REPOSITORY = Path(__file__).resolve().parents[3]
PATIENCE = 90.0
HEADERS = {
    "X-Auth-Token": "admin",
    "X-Roles": "admin,service,reader",
    "OpenStack-API-Version": "placement 1.39",
}


def eventually(condition: Callable[[], Any], what: str, patience: float = PATIENCE) -> Any:
    """Return the first true value of `condition`; AssertionError when it stays false."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(f"not within {patience} s: {what}")


@dataclass
class PlacementProcess:
    """A placement-server on a SQLite file, which survives `kill` and comes back on its port."""

    directory: Path
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        config = self.directory / "placement.conf"
        config.write_text(
            f"[placement_database]\nconnection = sqlite:///{self.directory}/placement.db\n"
            "sync_on_startup = true\n[api]\nauth_strategy = noauth2\n"
            "[oslo_policy]\nenforce_new_defaults = false\n"
        )
        log = self.directory / "placement.log"
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [
                    str(BIN / "placement-server"),
                    *("serve", "--config-file", str(config)),
                    *("--host", "127.0.0.1", "--port", str(self.port)),
                ],
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        wait_for_placement(self.url, self.process, log)

    def kill(self) -> None:
        """End the server and its workers at once, as a lost machine would."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def request(self, method: str, path: str, **kwargs: Any) -> requests.Response:
        return requests.request(method, self.url + path, headers=HEADERS, timeout=30, **kwargs)

    def get(self, path: str) -> Any:
        answer = self.request("GET", path)
        answer.raise_for_status()
        return answer.json()

    def root(self, name: str) -> dict[str, Any] | None:
        found = self.get(f"/resource_providers?name={name}")["resource_providers"]
        return found[0] if found else None

    def tree(self, name: str) -> dict[str, dict[str, Any]]:
        """Return the providers of a tree by name: parent's name, inventories, traits."""
        root = self.root(name)
        if root is None:
            return {}
        found = self.get(f"/resource_providers?in_tree={root['uuid']}")["resource_providers"]
        names = {provider["uuid"]: provider["name"] for provider in found}
        tree = {}
        for provider in found:
            path = f"/resource_providers/{provider['uuid']}"
            tree[provider["name"]] = {
                "uuid": provider["uuid"],
                "parent": names.get(provider["parent_provider_uuid"]),
                "inventories": self.get(f"{path}/inventories")["inventories"],
                "traits": sorted(self.get(f"{path}/traits")["traits"]),
            }
        return tree


def claim(
    placement: PlacementProcess,
    provider: str,
    resources: dict[str, int],
    consumer: str | None = None,
) -> str:
    """Allocate on one provider for a new consumer and return its uuid."""
    consumer = consumer or str(uuid.uuid4())
    body = {
        "allocations": {provider: {"resources": resources}},
        "project_id": "p",
        "user_id": "u",
        "consumer_generation": None,
        "consumer_type": "INSTANCE",
    }
    answer = placement.request("PUT", f"/allocations/{consumer}", json=body)
    assert answer.status_code == 204, answer.text
    return consumer


@dataclass
class Rule:
    """What the proxy answers instead of placement."""

    method: str
    path: str
    status: int | None
    """None: the connection is closed without an answer."""
    body: bytes
    times: int
    after: bool
    headers: dict[str, str]
    held: threading.Event | None = None
    go_on: threading.Event | None = None
    """Set by a test to let the answer through after all."""


class LyingProxy:
    """Stands before placement, passes everything on, and lies where a test asks for it."""

    def __init__(self, upstream: str) -> None:
        self.requests: list[str] = []
        self._upstream = upstream
        self._rules: list[Rule] = []
        self._lock = threading.Lock()
        self._closing = threading.Event()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                proxy.serve(self, self.rfile.read(length) if length else b"")

            do_GET = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815

            def log_message(self, *_args: object) -> None:
                """Nothing: the test has the list of requests."""

        class Server(ThreadingHTTPServer):
            def handle_error(self, *_args: object) -> None:
                """Nothing: an agent that is killed leaves connections behind."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def answer(
        self,
        method: str,
        path: str,
        status: int | None,
        body: Any = b"",
        *,
        times: int = 10**6,
        after: bool = False,
        headers: dict[str, str] | None = None,
    ) -> None:
        """Answer requests whose method and path match (regular expressions).

        :param after: placement gets the request first; only its answer is lost.
        """
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        with self._lock:
            self._rules.insert(0, Rule(method, path, status, raw, times, after, headers or {}))

    def hold(self, method: str, path: str) -> threading.Event:
        """Pass one request on, and never answer it; the event is set when placement has."""
        held = threading.Event()
        with self._lock:
            self._rules.insert(0, Rule(method, path, None, b"", 1, True, {}, held))
        return held

    def pause(self, method: str, path: str) -> tuple[threading.Event, threading.Event]:
        """Pass one request on, and its answer back only when the second event is set.

        The first is set when placement has the request.
        """
        held, go_on = threading.Event(), threading.Event()
        with self._lock:
            self._rules.insert(0, Rule(method, path, None, b"", 1, True, {}, held, go_on))
        return held, go_on

    def error(self, method: str, path: str, status: int, code: str = "", **kwargs: Any) -> None:
        """Answer with an error as placement words it."""
        detail = f"{status} was scripted"
        entry = {"status": status, "title": "Scripted", "detail": detail, "request_id": "req-x"}
        if code:
            entry["code"] = code
        self.answer(method, path, status, {"errors": [entry]}, **kwargs)

    def honest(self) -> None:
        """Lie no longer."""
        with self._lock:
            self._rules.clear()

    def serve(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        method, path = handler.command, handler.path
        with self._lock:
            self.requests.append(f"{method} {path}")
            rule = next((r for r in self._rules if self._applies(r, method, path)), None)
            if rule is not None:
                rule.times -= 1
        if rule is None or rule.after:
            skipped = {"host", "connection", "content-length"}
            headers = {k: v for k, v in handler.headers.items() if k.lower() not in skipped}
            answer = requests.request(
                method, self._upstream + path, data=body, headers=headers, timeout=60
            )
            if rule is None:
                self._send(handler, answer.status_code, answer.content, dict(answer.headers))
                return
        if rule.held is not None:
            rule.held.set()
            if rule.go_on is not None:
                assert rule.go_on.wait(PATIENCE)
                self._send(handler, answer.status_code, answer.content, dict(answer.headers))
                return
            self._closing.wait()
        if rule.status is None:
            handler.close_connection = True
            with contextlib.suppress(OSError):  # the agent may be gone
                handler.connection.shutdown(socket.SHUT_RDWR)
            return
        self._send(handler, rule.status, rule.body, rule.headers)

    def close(self) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()

    @staticmethod
    def _applies(rule: Rule, method: str, path: str) -> bool:
        return (
            rule.times > 0
            and re.fullmatch(rule.method, method) is not None
            and re.search(rule.path, path) is not None
        )

    @staticmethod
    def _send(
        handler: BaseHTTPRequestHandler, status: int, body: bytes, headers: dict[str, str]
    ) -> None:
        handler.send_response(status)
        dropped = {"connection", "content-length", "transfer-encoding", "content-encoding"}
        given = {k: v for k, v in headers.items() if k.lower() not in dropped}
        given.setdefault("Content-Type", "application/json")
        for name, value in given.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)


class AgentProcess:
    """One `compute-agent`, its configuration and its state directory.

    :param options: lines of the configuration by group, over the defaults of a test.
    """

    def __init__(self, directory: Path, placement_url: str, **options: Any) -> None:
        self.directory = directory
        self.state = directory / "state"
        self.config = directory / "agent.conf"
        self.script_path = directory / "script.json"
        self.log = directory / "agent.log"
        self.process: subprocess.Popen[bytes] | None = None
        self._options: dict[str, dict[str, Any]] = {
            "DEFAULT": {
                "compute_driver": "tests.functional.agent.scripted_driver.ScriptedDriver",
                "state_path": self.state,
                "periodic_fuzzy_delay": 0,
                "update_resources_interval": 1,
            },
            "placement": {"auth_type": "noauth", "endpoint_override": placement_url},
            "compute": {"provider_config_location": directory / "provider_config"},
        }
        self.script()
        self.configure(**options)

    def configure(self, **groups: dict[str, Any]) -> None:
        """Set options (None takes one out) and write the file."""
        for group, options in groups.items():
            self._options.setdefault(group, {}).update(options)
        lines = []
        for group, options in self._options.items():
            lines.append(f"[{group}]")
            lines += [f"{name} = {value}" for name, value in options.items() if value is not None]
        self.config.write_text("\n".join(lines) + "\n")

    def script(self, **behaviour: Any) -> None:
        """Tell the scripted driver what to do from now on."""
        fresh = self.script_path.with_suffix(".new")
        fresh.write_text(json.dumps(behaviour))
        fresh.rename(self.script_path)

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "PYTHONPATH": str(REPOSITORY),
            "SCRIPTED_DRIVER": str(self.script_path),
            "PYTHONUNBUFFERED": "1",
        }

    def command(self, *arguments: str) -> list[str]:
        return [str(BIN / "compute-agent"), *arguments, "--config-file", str(self.config)]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            self.command(*arguments),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            env=self.environment(),
            check=False,
        )

    def start(self, *arguments: str, **environment: str) -> None:
        """Start `compute-agent run`, in the background."""
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                self.command("run", *arguments),
                stdout=output,
                stderr=output,
                env=self.environment() | environment,
            )

    def started(self) -> dict[str, Any]:
        """Wait until the first pass of every node has completed; returns the status."""
        return eventually(self._reported, f"a completed pass; the log: {self.log.read_text()}")

    def finished_first_pass(self) -> bool:
        return self._reported() is not None

    def _reported(self) -> dict[str, Any] | None:
        assert self.process is None or self.process.poll() is None, self.log.read_text()
        status = self.status()
        done = status and status["nodes"] and not any(n["startup"] for n in status["nodes"])
        return status if done else None

    def status(self) -> dict[str, Any] | None:
        """Return the status document, None while nobody answers."""
        try:
            document: dict[str, Any] = local_socket.ask(self.state / "status.sock", "status", 30)
        except errors.ComputeAgentError:
            return None
        return document

    def node(self) -> dict[str, Any]:
        status = eventually(self.status, "an answer on the status socket")
        return status["nodes"][0] if status["nodes"] else {}

    def report(self) -> dict[str, Any]:
        """Ask for a pass and return the status of the node after it."""
        document = local_socket.ask(self.state / "status.sock", "report", PATIENCE)
        node: dict[str, Any] = document["nodes"][0]
        return node

    def ask(self, command: str, **arguments: Any) -> Any:
        """Give a command over the local socket."""
        return local_socket.ask(self.state / "status.sock", command, PATIENCE, **arguments)

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def ended(self) -> int:
        """Wait for the process to end by itself and return its status."""
        assert self.process is not None
        code = self.process.wait(PATIENCE)
        self.process = None
        return code

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.send(number)
        return self.ended()

    def cleanup(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def logged(self) -> str:
        return self.log.read_text() if self.log.exists() else ""


@contextlib.contextmanager
def running(agent: AgentProcess) -> Iterator[AgentProcess]:
    """Start an agent, wait for its first pass, and kill it in the end."""
    agent.start()
    try:
        agent.started()
        yield agent
    finally:
        agent.cleanup()


def read_url(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return str(answer.read().decode())
