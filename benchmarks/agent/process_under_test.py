"""The agent under test: its process, the server it speaks to, and the cost of one event."""

import contextlib
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.parts.client import Client
from benchmarks.parts.interpreters import WITHOUT_EXTRAS
from benchmarks.parts.servers import Server, keeping_bytecode

REPOSITORY = Path(__file__).parents[2]
_PROCESS = f"{WITHOUT_EXTRAS}from benchmarks.agent.process import main\nmain()"


@dataclass(frozen=True)
class Bound:
    """What an event may cost at most; None: nothing is demanded. CPU in seconds.

    `nova`: requests, client CPU and placement CPU of the published Nova, where it was measured.
    """

    requests: float
    placement_cpu: float | None = None
    nova: tuple[int, float, float] | None = None


@dataclass
class Cost:
    """One event: means per run; CPU and wall in seconds."""

    event: str
    requests: float
    wall: float
    agent_cpu: float
    placement_cpu: float
    calls: dict[str, int] = field(default_factory=dict)

    def verdict(self, bounds: Mapping[str, Bound], *, our_server: bool) -> str:
        """What the bounds demand, and whether it holds; CPU is demanded of our server only."""
        bound = bounds[self.event]
        parts = [("requests", self.requests, float(bound.requests))]
        if our_server and bound.placement_cpu is not None:
            parts.append(("placement CPU", self.placement_cpu, bound.placement_cpu))
        return "; ".join(
            f"{name} at most {limit:.3g} {'holds' if value <= limit else 'FAILS'}"
            for name, value, limit in parts
        )


class AgentUnderTest:
    """A process of `benchmarks.agent.process` and the host it reports."""

    def __init__(self, directory: Path, server: Server, **options: str) -> None:
        self.host = f"host-{uuid.uuid4().hex[:8]}"
        self.state = directory / self.host
        self.state.mkdir(parents=True)
        self._server = server
        self._config = self.state / "agent.conf"
        refresh = options.pop("refresh", "0")
        driver = options.pop("driver", "fake.FakeNumaDriver")
        extensions = options.pop("extensions")
        self._config.write_text(
            f"[DEFAULT]\nhost = {self.host}\ncompute_driver = {driver}\n"
            f"state_path = {self.state}\n"
            f"[placement]\nauth_type = noauth\nendpoint_override = {server.url}\n"
            f"[compute]\nresource_provider_association_refresh = {refresh}\n"
            f"provider_config_location = {self.state}\n"
            f"[compute_agent]\nuse_placement_extensions = {extensions}\n"
            "[fake]\npfs_per_nic = 16\n"
        )
        self._process: subprocess.Popen[str] | None = None
        self.after_import: dict[str, Any] = {}

    def start(self) -> "AgentUnderTest":
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROCESS, str(self._config)],
            cwd=REPOSITORY,
            env=keeping_bytecode(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.after_import = self._answer()
        return self

    def close(self) -> None:
        self._ask(do="close")
        assert self._process is not None
        self._process.communicate(timeout=60)

    def forget(self) -> None:
        """Lose the cache file."""
        (self.state / "placement-cache.json").unlink()

    def measure(self, event: str, times: int = 1, **command: Any) -> tuple[Cost, dict[str, Any]]:
        """What a command costs, agent's and placement's side; per run when it has several."""
        cpu = self._server.cpu_seconds()
        outcome = self._ask(**command, **({"times": times} if times > 1 else {}))
        cpu = self._server.cpu_seconds() - cpu
        cost = Cost(
            event,
            outcome["requests"] / times,
            outcome["wall"] / times,
            outcome["cpu"] / times,
            cpu / times,
            outcome["calls"],
        )
        return cost, outcome

    def passes(self, change: str = "") -> None:
        """One pass that nobody measures."""
        self._ask(do="passes", change=change)

    def _ask(self, **command: Any) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the agent of {self._config} ended: {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def tree_of(client: Client, host: str) -> dict[str, str]:
    """The providers of a host, name to uuid."""
    (root,) = client.must("GET", f"/resource_providers?name={host}")["resource_providers"]
    listing = client.must("GET", f"/resource_providers?in_tree={root['uuid']}")
    return {provider["name"]: provider["uuid"] for provider in listing["resource_providers"]}


def claim(client: Client, provider: str, resources: dict[str, int]) -> None:
    client.must(
        "PUT",
        f"/allocations/{uuid.uuid4()}",
        {
            "allocations": {provider: {"resources": resources}},
            "project_id": "p",
            "user_id": "u",
            "consumer_generation": None,
            "consumer_type": "INSTANCE",
        },
    )


@contextlib.contextmanager
def on_sqlite(start: Callable[..., Any], directory: Path) -> Iterator[Server]:
    """A server of one process on SQLite."""
    directory.mkdir(parents=True)
    with start(directory, f"sqlite:///{directory}/placement.db", 1) as server:
        yield server


def memory_directory() -> str | None:
    """Where files are kept in memory; None for where temporary files go."""
    shared_memory = Path("/dev/shm")
    return str(shared_memory) if os.access(shared_memory, os.W_OK) else None
