"""Many agents in one process, each with its own report client, tracker, state and connections.

They keep the schedule that real ones keep.
"""

from __future__ import annotations

import heapq
import random
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oslo_config import cfg

from benchmarks.agent.relay import Relay
from compute_agent.placement.transports.keystone import KeystoneTransport
from compute_agent.placement.transports.transport import Response, Transport
from compute_agent.provider_config.merger import ProviderConfigMerger
from compute_agent.provider_tree import ProviderTree
from compute_agent.report.client import ReportClient
from compute_agent.state.ledger import Ledger
from compute_agent.tracker.passes.device_faults import UNKNOWN_BOOT, DeviceFaults
from compute_agent.tracker.passes.node_pass import NodePass
from compute_agent.tracker.resource_tracker import ResourceTracker, TrackerOptions
from compute_agent.tracker.status import StatusBoard
from compute_agent.virt.driver import Allocations, ComputeDriver

PERIOD = 60.0
FUZZY_DELAY = 60.0
THREADS = 512
"""More than passes ever wait at a time: agents must not queue for one another in here."""


class FleetDriver(ComputeDriver):
    """A host with a root and GPUs below it, which never changes."""

    def __init__(self, conf: cfg.ConfigOpts, name: str, children: int) -> None:
        super().__init__(conf)
        self._name = name
        self._children = children

    def get_available_nodes(self, refresh: bool = False) -> list[str]:  # noqa: ARG002 (contract)
        return [self._name]

    def get_available_resource(self, nodename: str) -> dict[str, Any]:
        numbers = dict.fromkeys(("vcpus", "memory_mb", "local_gb"), 64)
        used = dict.fromkeys(("vcpus_used", "memory_mb_used", "local_gb_used"), 0)
        return {
            **numbers,
            **used,
            "hypervisor_hostname": nodename,
            "hypervisor_type": "fleet",
            "hypervisor_version": 1,
            "cpu_info": "{}",
            "numa_topology": None,
        }

    def update_provider_tree(
        self,
        provider_tree: ProviderTree,
        nodename: str,
        allocations: Allocations | None = None,  # noqa: ARG002 (nothing ever moves)
    ) -> None:
        provider_tree.update_inventory(
            nodename, {"VCPU": {"total": 64}, "MEMORY_MB": {"total": 65536}}
        )
        for number in range(self._children):
            name = f"{nodename}_gpu{number}"
            if not provider_tree.exists(name):
                provider_tree.new_child(name, nodename)
            provider_tree.update_inventory(name, {"VGPU": {"total": 4}})


@dataclass
class Traffic:
    """Requests of all agents: when each was sent, how long it took, whether it was answered."""

    sent_requests: list[tuple[float, float, bool]] = field(default_factory=list)
    passes: list[tuple[float, str]] = field(default_factory=list)
    """When a pass of which agent completed."""
    late: list[float] = field(default_factory=list)
    """Seconds from when a pass was due until it ended."""

    def clear(self) -> None:
        self.sent_requests, self.passes, self.late = [], [], []


class TimedTransport(Relay):
    """Notes every request of every agent."""

    def __init__(self, inner: Transport, traffic: Traffic) -> None:
        super().__init__(inner)
        self._traffic = traffic

    def relay(
        self,
        method: str,  # noqa: ARG002 (every request is timed alike)
        path: str,  # noqa: ARG002 (every request is timed alike)
        send: Callable[[], Response],
    ) -> Response:
        began = time.monotonic()
        is_answered = False
        try:
            answer = send()
            is_answered = answer.status < 500
        finally:
            self._traffic.sent_requests.append((began, time.monotonic() - began, is_answered))
        return answer


class SimulatedAgent:
    """One agent: real in everything that speaks to placement or decides when to."""

    def __init__(self, conf: cfg.ConfigOpts, directory: Path, url: str, children: int) -> None:
        self.uuid = str(uuid.uuid4())
        self.name = f"fleet-{self.uuid}"
        self._conf = conf
        self._state = directory / self.name
        self._state.mkdir(parents=True)
        self._url = url
        self._children = children

    def start(self, traffic: Traffic) -> None:
        """Begin as a new process would, knowing what its files say."""
        self._report = ReportClient(
            TimedTransport(KeystoneTransport.to_endpoint(self._url), traffic),
            cache_path=self._state / "placement-cache.json",
            use_extensions=True,
        )
        ledger = Ledger(self._state)
        driver = FleetDriver(self._conf, self.name, self._children)
        node_pass = NodePass(
            driver,
            self._report,
            ledger,
            ProviderConfigMerger(self._state / "none", ledger),
            DeviceFaults(ledger, UNKNOWN_BOOT),
        )
        self._tracker = ResourceTracker(
            node_pass,
            self._report,
            StatusBoard(self.name),
            TrackerOptions(period=PERIOD, fuzzy_delay=FUZZY_DELAY),
            is_enabled=lambda: True,
            wait=_wait,
        )
        self._tracker.add_node(self.name, self.uuid)

    def run_pass(self) -> tuple[bool, float]:
        """Whether the pass completed, and in how many seconds the next is due."""
        result = self._tracker.run_pass(self.name)
        if result.exit_code is not None:
            raise RuntimeError(f"agent {self.name} would have ended: {result.message}")
        return result.completed, result.next_in

    def stop(self) -> None:
        self._report.close()


def _wait(seconds: float) -> bool:
    time.sleep(seconds)
    return False


class Fleet:
    """All agents, and the thread that starts passes when they are due."""

    def __init__(self, agents: list[SimulatedAgent], traffic: Traffic, seed: str) -> None:
        self._agents = agents
        self.traffic = traffic
        self._rng = random.Random(seed)
        self._due_passes: list[tuple[float, int]] = []
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._faults: list[BaseException] = []
        self._at_work = 0
        self._pool = ThreadPoolExecutor(THREADS, "agent")
        self._thread = threading.Thread(target=self._run, name="schedule")

    def start(self) -> None:
        """All agents start now; the first pass of each comes after its random delay."""
        now = time.monotonic()
        for number, agent in enumerate(self._agents):
            agent.start(self.traffic)
            self._due_passes.append((now + self._rng.uniform(0.0, FUZZY_DELAY), number))
        heapq.heapify(self._due_passes)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._pool.shutdown()
        for agent in self._agents:
            agent.stop()
        if self._faults:
            raise self._faults[0]

    @property
    def at_work(self) -> int:
        """Passes that have begun and not ended."""
        with self._lock:
            return self._at_work

    def completed_since(self, moment: float) -> int:
        """How many different agents completed a pass since then."""
        return len({name for at, name in list(self.traffic.passes) if at >= moment})

    def wait_for_all(self, since: float, patience: float) -> float:
        """Seconds until every agent has completed a pass that ended after `since`."""
        while self.completed_since(since) < len(self._agents):
            if self._faults or time.monotonic() - since > patience:
                done_count = self.completed_since(since)
                raise RuntimeError(
                    f"{done_count} of {len(self._agents)} agents completed a pass within "
                    f"{patience:.0f} s"
                ) from (self._faults[0] if self._faults else None)
            time.sleep(0.05)
        return max(_firsts(self.traffic.passes, since).values()) - since

    def _run(self) -> None:
        while not self._stopping.is_set():
            with self._lock:
                due_at = self._due_passes[0][0] if self._due_passes else time.monotonic() + 1.0
                ready = None
                if self._due_passes and due_at <= time.monotonic():
                    _, ready = heapq.heappop(self._due_passes)
                    self._at_work += 1
            if ready is not None:
                self._pool.submit(self._one, ready, due_at)
            else:
                self._stopping.wait(min(0.02, max(0.0, due_at - time.monotonic())))

    def _one(self, number: int, due_at: float) -> None:
        agent = self._agents[number]
        try:
            is_completed, next_in = agent.run_pass()
        except BaseException as fault:  # noqa: BLE001 - told by whoever waits for the agents
            self._faults.append(fault)
            return
        now = time.monotonic()
        if is_completed:
            self.traffic.passes.append((now, agent.name))
            self.traffic.late.append(now - due_at)
        with self._lock:
            self._at_work -= 1
            heapq.heappush(self._due_passes, (now + next_in, number))


def _firsts(passes: list[tuple[float, str]], since: float) -> dict[str, float]:
    first: dict[str, float] = {}
    for at, name in list(passes):
        if at >= since:
            first.setdefault(name, at)
    return first
