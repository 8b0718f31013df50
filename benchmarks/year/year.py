"""A year of a small fleet: its processes, what happens to them, and what is measured."""

import logging
import os
import re
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil
import requests
import sqlalchemy as sa

from benchmarks.agent.simulated_agents import SimulatedAgent, Traffic
from benchmarks.agent.soak import FAKE, Others, ask_for_pass, daemon
from benchmarks.parts.postgresql import free_port
from benchmarks.parts.servers import Server, running, write_config
from benchmarks.parts.worlds import uuid_of
from benchmarks.scheduler.schedulers import Schedulers
from benchmarks.year import deeds, tables
from benchmarks.year.series import Bound, Year
from compute_agent import conf as agent_conf
from placement_server.store.changes.changes import KEPT_ROWS
from tests.fixtures.rabbitmq import RabbitMq

PASSES: Final = 10_000
CLAIMS: Final = 250_000
"""And as many releases."""
COMINGS_AND_GOINGS: Final = 500
SCHEDULED: Final = 500
CHILDREN: Final = 4
WORKERS: Final = 2
MIB: Final = 2**20
_METRIC: Final = re.compile(r"^placement_index_slots ([0-9.]+)$", re.MULTILINE)

_RSS: Final = {"server": 8.0, "agent": 4.0, "scheduler": 8.0, "simulated agents": 16.0}
_DESCRIPTORS: Final = Bound(amount=32)
_TIME: Final = Bound(share=0.5)
_CPU: Final = Bound(share=0.2)
_SPACE: Final = Bound(amount=8, share=0.2)
_ROWS: Final = Bound(amount=20, share=0.05)


@dataclass(frozen=True)
class Plan:
    """The length of a year.

    :ivar scale: the part of all that happens in a whole one.
    :ivar periods: samples; a restart comes after some of them.
    :ivar kept_seconds: for how long change records are kept.
    :ivar held: claims at a time.
    :ivar prune_every: after how many periods the database is pruned.
    """

    scale: float
    periods: int
    restarts: tuple[int, ...]
    kept_seconds: float
    agents: int = 50
    held: int = 600
    prune_every: int = 1
    seed: str = "1"

    def share(self, whole: int) -> int:
        """How many there are in one period."""
        return max(1, round(whole * self.scale / self.periods))


class Fleet:
    """All processes, started again and again over one database."""

    def __init__(self, directory: Path, database: str, plan: Plan, broker: RabbitMq | None) -> None:
        self._directory = directory
        self._plan = plan
        self._broker = broker
        self._engine = sa.create_engine(database, poolclass=sa.NullPool)
        self._port = free_port()
        self._config = write_config(directory / "server", database)
        with self._config.open("a") as stream:
            stream.write("[placement_server]\nmetrics_path = /-/metrics\n")
        self._tenants = deeds.Tenants(plan.seed, plan.held)
        self._operator = deeds.Operator()
        self._traffic = Traffic()
        conf = agent_conf.new_config([], default_config_files=[], default_config_dirs=[])
        url = f"http://127.0.0.1:{self._port}"
        self._agents = [
            SimulatedAgent(conf, directory / "agents", url, CHILDREN)
            for _ in range(plan.agents - 1)
        ]
        self._host = f"host-{uuid.uuid4().hex[:8]}"
        self._passes = 0
        self.year = Year()

    def live(self, told: Callable[[str], None]) -> None:
        """Run the whole year; ``told`` gets a line for each period."""
        logging.getLogger("compute_agent").setLevel(logging.CRITICAL)
        self.manage("db", "sync")
        starts = (0, *self._plan.restarts)
        ends = (*self._plan.restarts, self._plan.periods)
        for season, (start, end) in enumerate(zip(starts, ends, strict=True)):
            with ExitStack() as stack:
                processes = self._start(stack, season)
                for period in range(start, end):
                    told(self._period((period + 1) / self._plan.periods, processes))

    def manage(self, *arguments: str) -> str:
        """Run placement-manage; raises CalledProcessError when it does not end with 0."""
        command = self._program("placement-manage", "--config-file", str(self._config), *arguments)
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return done.stdout

    def _program(self, name: str, *arguments: str) -> list[str]:
        seconds = str(self._plan.kept_seconds)
        return [sys.executable, "-m", "benchmarks.year.small_times", seconds, name, *arguments]

    def _start(self, stack: ExitStack, season: int) -> "Processes":
        log = self._directory / f"server-{season}.log"
        command = self._program("placement-server", "serve", "--config-file", str(self._config))
        command += ["--host", "127.0.0.1", "--port", str(self._port)]
        command += ["--workers", str(WORKERS), "--threads", "4"]
        server = stack.enter_context(running("ours", command, dict(os.environ), self._port, log))
        if season == 0:
            deeds.load(server.url)
        self._tenants.connect(server.url)
        stack.enter_context(self._simulated_agents())
        directory = self._directory / "daemon"
        directory.mkdir(exist_ok=True)
        agent = stack.enter_context(daemon(directory, server, self._host, FAKE))
        schedulers = None
        if self._broker is not None:
            schedulers = Schedulers(server, self._broker, self._directory / f"season-{season}", 1)
            roots = [uuid_of(f"year-{number}") for number in range(deeds.HOSTS)]
            stack.enter_context(schedulers.running(roots))
        return Processes(server, psutil.Process(agent.pid), Others(server, self._host), schedulers)

    @contextmanager
    def _simulated_agents(self) -> Iterator[None]:
        for agent in self._agents:
            agent.start(self._traffic)
        try:
            yield
        finally:
            for agent in self._agents:
                agent.stop()

    def _period(self, now: float, processes: "Processes") -> str:
        """Let everybody act, prune, and measure."""
        plan = self._plan
        began, cpu = time.monotonic(), processes.server.cpu_seconds()
        with ThreadPoolExecutor(2) as pool:
            others = [pool.submit(self._make_passes, processes)]
            others.append(
                pool.submit(
                    self._operator.act, processes.server.url, plan.share(COMINGS_AND_GOINGS)
                )
            )
            took = self._tenants.act(plan.share(CLAIMS))
            for other in others:
                other.result()
        if processes.schedulers is not None:
            processes.schedulers.claim_and_release(plan.share(SCHEDULED))
        if round(now * plan.periods) % plan.prune_every == 0:
            self.manage("prune")
        requests_sent = sum(map(len, took.values())) + len(self._traffic.sent)
        cpu = 1000 * (processes.server.cpu_seconds() - cpu) / requests_sent
        self._traffic.clear()
        self._measure(now, processes, took, cpu)
        latest = {name: series.points[-1][1] for name, series in self.year.series.items()}
        return (
            f"{now:4.0%} in {time.monotonic() - began:.0f} s: "
            f"server {latest['server: MiB']:.1f} MiB, "
            f"{latest['server: CPU ms a request']:.2f} ms; agent {latest['agent: MiB']:.1f} MiB; "
            f"{latest['rows of changes']:.0f} changes, {latest['rows of consumers']:.0f} consumers"
        )

    def _make_passes(self, processes: "Processes") -> None:
        """Passes of all agents in turn, one of which is a process of its own."""
        for _ in range(self._plan.share(PASSES)):
            number, agent = divmod(self._passes, self._plan.agents)
            self._passes += 1
            if agent == 0:
                processes.others.interfere(number)
                ask_for_pass(self._directory / "daemon")
                continue
            completed, _ = self._agents[agent - 1].run_pass()
            if not completed:
                raise RuntimeError("a pass of an agent did not complete")

    def _measure(
        self, now: float, processes: "Processes", took: dict[str, list[float]], cpu: float
    ) -> None:
        def add(name: str, value: float, bound: Bound) -> None:
            self.year.add(now, name, value, bound)

        for name, members in processes.by_name().items():
            infos = [(p.memory_info().rss / MIB, p.num_fds(), p.num_threads()) for p in members]
            sizes, *counts = zip(*infos, strict=True)
            # which worker has which connection changes, but not how many there are
            resident, files, threads = max(sizes), *map(sum, counts)
            add(f"{name}: MiB", resident, Bound(amount=_RSS[name]))
            add(f"{name}: descriptors", files, _DESCRIPTORS)
            add(f"{name}: threads", threads, _DESCRIPTORS)
        for kind, seconds in took.items():
            if seconds:
                add(f"{kind}: median ms", 1000 * statistics.median(seconds), _TIME)
        add("server: CPU ms a request", cpu, _CPU)
        answer = requests.get(f"{processes.server.url}/-/metrics", timeout=60).text
        (slots,) = _METRIC.findall(answer)
        add("slots of the index", float(slots), Bound(amount=5000))
        for name, count in tables.rows(self._engine).items():
            add(f"rows of {name}", count, Bound(KEPT_ROWS) if name == "changes" else _ROWS)
        for name, size in tables.sizes(self._engine).items():
            add(f"database, {name}: MiB", size, _SPACE)
        states = {"agent": self._directory / "daemon", "agents": self._directory / "agents"}
        for name, directory in states.items():
            files_of = [path for path in directory.rglob("*") if path.is_file()]
            kept = [path.stat().st_size / MIB for path in files_of if path.name != "log"]
            add(f"state of {name}: MiB", sum(kept), Bound(amount=1))


@dataclass(frozen=True)
class Processes:
    """Those of one season."""

    server: Server
    agent: psutil.Process
    others: Others
    schedulers: Schedulers | None

    def by_name(self) -> dict[str, list[psutil.Process]]:
        members = {
            "server": psutil.Process(self.server.pid).children(),
            "agent": [self.agent],
            "simulated agents": [psutil.Process()],
        }
        if self.schedulers is not None:
            members["scheduler"] = [psutil.Process(pid) for pid in self.schedulers.pids]
        return members
