"""A thousand agents against one placement: do they ever come all at once?

The agents are simulated in one process: each has its own report client, tracker, state directory
and kept-alive connections, and the schedule a real one keeps. The server is a process of its own,
with its database on PostgreSQL. Phases: all agents start at once on new hosts, restart at once,
are left alone, lose placement, and get it back.
"""

from __future__ import annotations

import heapq
import logging
import random
import resource
import statistics
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oslo_config import cfg
from rich.console import Console
from rich.table import Table

from benchmarks.agent import exact_cpu_seconds
from benchmarks.relay import Relay
from benchmarks.servers import Server, free_port, ours, postgresql
from compute_agent import conf as agent_conf
from compute_agent.provider_config.merger import ProviderConfigMerger
from compute_agent.provider_tree import ProviderTree
from compute_agent.report.client import ReportClient
from compute_agent.report.keystone import KeystoneTransport
from compute_agent.report.transport import Response, Transport
from compute_agent.state.ledger import Ledger
from compute_agent.tracker.faults import UNKNOWN_BOOT, DeviceFaults
from compute_agent.tracker.node_pass import NodePass
from compute_agent.tracker.resource_tracker import ResourceTracker, TrackerOptions
from compute_agent.tracker.status import StatusBoard
from compute_agent.virt.driver import Allocations, ComputeDriver

AGENTS = 1000
PERIOD = 60.0
FUZZY_DELAY = 60.0
THREADS = 512
"""More than passes ever wait at a time: agents must not queue for one another in here."""
WORKERS = 2
SERVER_THREADS = 4
PEAK_OVER_STEADY = 5.0
"""A peak above this many times the steady one is a herd. It is not 1: whoever waits for the end of
an outage asks for the version document meanwhile, again after at most 1, 2, 4, ... 60 seconds."""


@dataclass(frozen=True)
class Lengths:
    """Seconds of the phases, and providers of one host."""

    steady: float
    outage: float
    children: int


FULL = Lengths(600.0, 60.0, 44)
QUICK = Lengths(60.0, 20.0, 4)


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

    sent: list[tuple[float, float, bool]] = field(default_factory=list)
    passes: list[tuple[float, str]] = field(default_factory=list)
    """When a pass of which agent completed."""

    def clear(self) -> None:
        self.sent, self.passes = [], []


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
        answered = False
        try:
            answer = send()
            answered = answer.status < 500
        finally:
            self._traffic.sent.append((began, time.monotonic() - began, answered))
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
        self._due: list[tuple[float, int]] = []
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._faults: list[BaseException] = []
        self._pool = ThreadPoolExecutor(THREADS, "agent")
        self._thread = threading.Thread(target=self._run, name="schedule")

    def start(self) -> None:
        """All agents start now; the first pass of each comes after its random delay."""
        now = time.monotonic()
        for number, agent in enumerate(self._agents):
            agent.start(self.traffic)
            self._due.append((now + self._rng.uniform(0.0, FUZZY_DELAY), number))
        heapq.heapify(self._due)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._pool.shutdown()
        for agent in self._agents:
            agent.stop()
        if self._faults:
            raise self._faults[0]

    def completed_since(self, moment: float) -> int:
        """How many different agents completed a pass since then."""
        return len({name for at, name in list(self.traffic.passes) if at >= moment})

    def wait_for_all(self, since: float, patience: float) -> float:
        """Seconds until every agent has completed a pass that ended after `since`."""
        while self.completed_since(since) < len(self._agents):
            if self._faults or time.monotonic() - since > patience:
                done = self.completed_since(since)
                raise RuntimeError(
                    f"{done} of {len(self._agents)} agents completed a pass within {patience:.0f} s"
                ) from (self._faults[0] if self._faults else None)
            time.sleep(0.05)
        return max(_firsts(self.traffic.passes, since).values()) - since

    def _run(self) -> None:
        while not self._stopping.is_set():
            with self._lock:
                due = self._due[0][0] if self._due else time.monotonic() + 1.0
                ready = None
                if self._due and due <= time.monotonic():
                    _, ready = heapq.heappop(self._due)
            if ready is not None:
                self._pool.submit(self._one, ready)
            else:
                self._stopping.wait(min(0.02, max(0.0, due - time.monotonic())))

    def _one(self, number: int) -> None:
        agent = self._agents[number]
        try:
            completed, next_in = agent.run_pass()
        except BaseException as fault:  # noqa: BLE001 - told by whoever waits for the agents
            self._faults.append(fault)
            return
        now = time.monotonic()
        if completed:
            self.traffic.passes.append((now, agent.name))
        with self._lock:
            heapq.heappush(self._due, (now + next_in, number))


def _firsts(passes: list[tuple[float, str]], since: float) -> dict[str, float]:
    first: dict[str, float] = {}
    for at, name in list(passes):
        if at >= since:
            first.setdefault(name, at)
    return first


@dataclass
class Phase:
    """What the fleet did in some stretch of time."""

    name: str
    seconds: float
    requests: int
    failed: int
    peak: int
    p50_ms: float
    p99_ms: float
    server_cpu: float
    note: str = ""
    holds: bool | None = None

    @property
    def rate(self) -> float:
        return self.requests / self.seconds


class Observer:
    """Cuts the traffic into phases."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self.phases: list[Phase] = []

    def observe(
        self, name: str, server: Server | None, during: Callable[[], tuple[str, bool | None]]
    ) -> Phase:
        """Run `during`, which returns a note and whether what is demanded of the phase held."""
        self._traffic.clear()
        began, cpu = time.monotonic(), _cpu(server)
        note, holds = during()
        seconds, cpu = time.monotonic() - began, _cpu(server) - cpu
        sent = list(self._traffic.sent)
        per_second = Counter(int(at - began) for at, _, _ in sent)
        answered = sorted(took for _, took, fine in sent if fine) or [0.0]
        phase = Phase(
            name,
            seconds,
            len(sent),
            sum(not fine for _, _, fine in sent),
            max(per_second.values(), default=0),
            1000 * statistics.median(answered),
            1000 * answered[int(0.99 * (len(answered) - 1))],
            cpu,
            note,
            holds,
        )
        self.phases.append(phase)
        return phase


def _cpu(server: Server | None) -> float:
    return exact_cpu_seconds(server.pid) if server is not None else 0.0


def run(directory: Path, lengths: Lengths, agents: int, seed: str) -> list[Phase]:
    """The life of a fleet; raises RuntimeError when an agent never gets through."""
    logging.getLogger("compute_agent").setLevel(logging.CRITICAL)
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    conf = agent_conf.new_config([], default_config_files=[], default_config_dirs=[])
    traffic = Traffic()
    observer = Observer(traffic)
    port = free_port()
    with postgresql(directory / "postgresql") as database:
        connection = f"postgresql+psycopg:{database}/ours"

        @contextmanager
        def placement() -> Iterator[Server]:
            # Its directory is made anew: a server that comes back finds its database, no more.
            with ours(
                directory / "ours", connection, WORKERS, threads=SERVER_THREADS, port=port
            ) as server:
                yield server

        url = f"http://127.0.0.1:{port}"
        hosts = [
            SimulatedAgent(conf, directory / "agents", url, lengths.children) for _ in range(agents)
        ]
        fleet = Fleet(hosts, traffic, seed)
        with placement() as server:
            observer.observe("first start of all", server, _starting(fleet))
            fleet.stop()
            fleet = Fleet(hosts, traffic, seed + "again")
            observer.observe("restart of all", server, _starting(fleet))
            steady = observer.observe("steady", server, _steady(fleet, agents, lengths.steady))

        def away() -> tuple[str, None]:
            time.sleep(lengths.outage)
            return "placement is down", None

        observer.observe("outage", None, away)
        with placement() as server:
            observer.observe("back", server, _back(fleet))
            _judge_herd(observer.phases[-1], steady)
            fleet.stop()
    return observer.phases


def _starting(fleet: Fleet) -> Callable[[], tuple[str, bool | None]]:
    def during() -> tuple[str, bool | None]:
        began = time.monotonic()
        fleet.start()
        seconds = fleet.wait_for_all(began, 600.0)
        return f"all reported after {seconds:.0f} s", None

    return during


def _steady(fleet: Fleet, agents: int, seconds: float) -> Callable[[], tuple[str, bool | None]]:
    def during() -> tuple[str, bool | None]:
        traffic = fleet.traffic
        time.sleep(seconds)
        requests, passes = len(traffic.sent), len(traffic.passes)
        expected = agents * seconds / PERIOD
        return (
            f"{requests / max(passes, 1):.3f} requests per pass, "
            f"{passes / expected:.2f} passes per agent and period",
            requests <= 1.01 * max(passes, 1) + THREADS,
        )

    return during


def _back(fleet: Fleet) -> Callable[[], tuple[str, bool | None]]:
    def during() -> tuple[str, bool | None]:
        seconds = fleet.wait_for_all(time.monotonic(), 600.0)
        return f"all reported {seconds:.0f} s after placement answered", None

    return during


def _judge_herd(back: Phase, steady: Phase) -> None:
    ratio = back.peak / max(steady.peak, 1)
    back.holds = ratio <= PEAK_OVER_STEADY
    back.note += f"; peak {ratio:.1f} times the steady one, at most {PEAK_OVER_STEADY:.0f}"


def show(console: Console, seed: str, quick: bool, agents: int, steady: float | None) -> bool:
    """Run and print; whether what is demanded holds.

    :param steady: seconds of the steady phase, None for what the form says.
    """
    lengths = QUICK if quick else FULL
    if steady is not None:
        lengths = Lengths(steady, lengths.outage, lengths.children)
    with tempfile.TemporaryDirectory(prefix="fleet-", dir="/tmp") as name:
        directory = Path(name)
        directory.chmod(0o755)
        phases = run(directory, lengths, agents, seed)
    table = Table(
        title=f"{agents} agents of {lengths.children + 1} providers, a pass every {PERIOD:.0f} s, "
        f"one server of {WORKERS} processes on PostgreSQL"
    )
    headings = ("phase", "s", "requests", "unanswered", "requests/s", "peak/s")
    for heading in (*headings, "p50 ms", "p99 ms", "server cores", "note"):
        table.add_column(heading)
    for phase in phases:
        verdict = {None: "", True: ": holds", False: ": FAILS"}[phase.holds]
        table.add_row(
            phase.name,
            f"{phase.seconds:.0f}",
            str(phase.requests),
            str(phase.failed),
            f"{phase.rate:.1f}",
            str(phase.peak),
            f"{phase.p50_ms:.1f}",
            f"{phase.p99_ms:.1f}",
            f"{phase.server_cpu / phase.seconds:.2f}",
            phase.note + verdict,
        )
    console.print(table)
    return all(phase.holds is not False for phase in phases)
