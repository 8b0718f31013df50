"""Real processes for tests of the agent: placement-server and compute-agent."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests

from compute_agent import errors
from compute_agent.agent import local_socket
from tests.fixtures import programs
from tests.fixtures.allocations import amounts_of, claim_body, new_uuid
from tests.fixtures.databases import migrated_sqlite
from tests.fixtures.placement import wait_for_placement
from tests.fixtures.ports import free_port

BIN = Path(sys.executable).parent
REPOSITORY = Path(__file__).resolve().parents[3]
PATIENCE = 90.0
PLAIN_API = {"use_placement_extensions": "never"}
"""Options of group compute_agent for an agent whose single requests a test interferes with."""

HEADERS = {
    "X-Auth-Token": "admin",
    "X-Roles": "admin,service,reader",
    "OpenStack-API-Version": "placement 1.39, placement-ext 1.1",
}


def eventually(
    condition: Callable[[], Any], what: str, patience: float = PATIENCE, pause: float = 0.05
) -> Any:
    """Return the first true value of `condition`; AssertionError when it stays false."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(pause)
    raise AssertionError(f"not within {patience} s: {what}")


@dataclass
class PlacementProcess:
    """A placement-server on a SQLite file, which survives `kill` and comes back on its port."""

    directory: Path
    port: int = field(default_factory=free_port)
    process: programs.Process | None = None
    more: str = ""
    """More groups of its configuration."""
    database: str = ""
    """URL of another database than a SQLite file of its own."""
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    """More variables."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        config = self.directory / "placement.conf"
        url = self.database or migrated_sqlite(self.directory / "placement.db")
        config.write_text(
            f"[placement_database]\nconnection = {url}\n"
            "sync_on_startup = true\nsqlite_synchronous = false\n[api]\nauth_strategy = noauth2\n"
            f"[oslo_policy]\nenforce_new_defaults = false\n{self.more}"
        )
        log = self.directory / "placement.log"
        with log.open("ab") as output:
            self.process = programs.start(
                "placement-server",
                *("serve", "--config-file", str(config)),
                *("--host", "127.0.0.1", "--port", str(self.port), *self.arguments),
                output=output,
                environment={**os.environ, **self.environment},
                new_session=True,
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

    def send(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request that succeeds; its answer."""
        answer = self.request(method, path, json=body)
        assert answer.ok, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    def get(self, path: str) -> Any:
        return self.send("GET", path)

    def held(self, consumer: str) -> dict[str, dict[str, int]]:
        return amounts_of(self.get(f"/allocations/{consumer}"))

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


def vcpus(placement: PlacementProcess, node: str) -> int | None:
    """How many VCPU placement has on the root of a node, None when there is none."""
    tree = placement.tree(node)
    total = tree[node]["inventories"].get("VCPU", {}).get("total") if node in tree else None
    return None if total is None else int(total)


def claim(
    placement: PlacementProcess,
    provider: str,
    resources: dict[str, int],
    consumer: str | None = None,
) -> str:
    """Allocate on one provider for a new consumer and return its uuid."""
    consumer = consumer or new_uuid()
    placement.send("PUT", f"/allocations/{consumer}", claim_body({provider: resources}))
    return consumer


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
        self.process: programs.Process | None = None
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

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return programs.run(
            "compute-agent",
            *(*arguments, "--config-file", str(self.config)),
            timeout=PATIENCE,
            environment=self.environment(),
        )

    def start(self, *arguments: str, **environment: str) -> None:
        """Start `compute-agent run`, in the background."""
        with self.log.open("ab") as output:
            self.process = programs.start(
                "compute-agent",
                *("run", *arguments, "--config-file", str(self.config)),
                output=output,
                environment=self.environment() | environment,
            )

    def started(self) -> dict[str, Any]:
        """Wait until the first pass of every node has completed; returns the status."""
        try:
            reported: dict[str, Any] = eventually(self._reported, "a completed pass")
        except AssertionError as error:
            raise AssertionError(f"{error}; the log: {self.log.read_text()}") from error
        return reported

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
def running_placement(directory: Path) -> Iterator[PlacementProcess]:
    """Start a placement with all of its state in a new directory, and kill it in the end."""
    directory.mkdir(exist_ok=True)
    server = PlacementProcess(directory)
    try:
        server.start()
        yield server
    finally:
        server.kill()


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
