"""A year of a small fleet: its processes, what happens to them, and what is measured."""

import logging
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from benchmarks.agent.simulated_agents import SimulatedAgent, Traffic
from benchmarks.agent.soak import FAKE, Others, ask_for_pass, daemon
from benchmarks.parts.postgresql import free_port
from benchmarks.parts.servers import make_schema, running_server, write_config
from benchmarks.parts.worlds import uuid_of
from benchmarks.scheduler.schedulers import Schedulers
from benchmarks.year import deeds, measures, tables
from benchmarks.year.measures import Processes
from benchmarks.year.series import Sample, Year
from compute_agent import conf as agent_conf
from tests.fixtures.rabbitmq import RabbitMq

PASSES: Final = 10_000
CLAIMS: Final = 250_000
"""And as many releases."""
COMINGS_AND_GOINGS: Final = 500
SCHEDULED: Final = 500
CHILDREN: Final = 4
WORKERS: Final = 2


@dataclass(frozen=True)
class Plan:
    """The length of a year.

    :ivar scale: the part of all that happens in a whole one.
    :ivar periods: samples; a restart comes after some of them.
    :ivar kept_seconds: for how long change records are kept.
    :ivar held_count: claims at a time.
    :ivar prune_every: after how many periods the database is pruned.
    :ivar naptime: seconds after which PostgreSQL's autovacuum looks again.
    """

    scale: float
    periods: int
    restarts: tuple[int, ...]
    kept_seconds: float
    agents: int = 50
    held_count: int = 600
    prune_every: int = 1
    naptime: int = 1
    seed: str = "1"

    def share(self, whole: int) -> int:
        """How many there are in one period."""
        return max(1, round(whole * self.scale / self.periods))


class Fleet:
    """All processes, started again and again over one database."""

    def __init__(
        self,
        directory: Path,
        database: str,
        plan: Plan,
        broker: RabbitMq | None,
        on_sample: Callable[[Sample], None],
    ) -> None:
        self._directory = directory
        self._plan = plan
        self._broker = broker
        self._database = database
        self._engine = sa.create_engine(database, poolclass=sa.NullPool)
        self._on_sample = on_sample
        self._port = free_port()
        self._config = write_config(directory / "server", database)
        with self._config.open("a") as stream:
            stream.write("[placement_server]\nmetrics_path = /-/metrics\n")
        self._tenants = deeds.Tenants(plan.seed, plan.held_count)
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
        self.year = Year(measures.BOUNDS)

    def live(self) -> None:
        """Run the whole year."""
        logging.getLogger("compute_agent").setLevel(logging.CRITICAL)
        make_schema(self._database)
        tables.vacuum_every(self._engine, self._plan.naptime)
        starts = (0, *self._plan.restarts)
        ends = (*self._plan.restarts, self._plan.periods)
        for season, (start, end) in enumerate(zip(starts, ends, strict=True)):
            with ExitStack() as stack:
                self._start(stack, season)
                for period in range(start, end):
                    sample = self._period((period + 1) / self._plan.periods, season)
                    self.year.samples.append(sample)
                    self._on_sample(sample)

    def manage(self, *arguments: str) -> str:
        """Run placement-manage; raises CalledProcessError when it does not end with 0."""
        command = self._program("placement-manage", "--config-file", str(self._config), *arguments)
        result = subprocess.run(command, check=True, capture_output=True, text=True)
        return result.stdout

    def _program(self, name: str, *arguments: str) -> list[str]:
        seconds = str(self._plan.kept_seconds)
        return [sys.executable, "-m", "benchmarks.year.small_times", seconds, name, *arguments]

    def _start(self, stack: ExitStack, season: int) -> None:
        log = self._directory / f"server-{season}.log"
        command = self._program("placement-server", "serve", "--config-file", str(self._config))
        command += ["--host", "127.0.0.1", "--port", str(self._port)]
        command += ["--workers", str(WORKERS), "--threads", "4"]
        server = stack.enter_context(
            running_server("ours", command, dict(os.environ), self._port, log)
        )
        if season == 0:
            deeds.load(server.url)
        self._tenants.connect(server.url)
        stack.enter_context(self._simulated_agents())
        directory = self._directory / "daemon"
        directory.mkdir(exist_ok=True)
        agent = stack.enter_context(daemon(directory, server, self._host, FAKE))
        pids: list[int] = []
        self._schedulers = None
        if self._broker is not None:
            state = self._directory / f"season-{season}"
            self._schedulers = Schedulers(server, self._broker, state, 1)
            roots = [uuid_of(f"year-{number}") for number in range(deeds.HOSTS)]
            stack.enter_context(self._schedulers.start(roots))
            pids = self._schedulers.pids
        database = tables.server_pid(self._engine)
        self._processes = Processes(server, agent.pid, pids, database)
        self._others = Others(server, self._host)

    @contextmanager
    def _simulated_agents(self) -> Iterator[None]:
        for agent in self._agents:
            agent.start(self._traffic)
        try:
            yield
        finally:
            for agent in self._agents:
                agent.stop()

    def _period(self, now: float, season: int) -> Sample:
        """Let everybody act, prune, and measure."""
        plan, server = self._plan, self._processes.server
        began, before = time.monotonic(), self._processes.cpu()
        took = self._act()
        if self._schedulers is not None:
            self._schedulers.claim_and_release(plan.share(SCHEDULED))
        if round(now * plan.periods) % plan.prune_every == 0:
            self.manage("prune")
        requests_sent = sum(map(len, took.values())) + len(self._traffic.sent_requests)
        self._traffic.clear()
        cpu = {
            name: spent_seconds - before[name]
            for name, spent_seconds in self._processes.cpu().items()
        }
        states = {"agent": self._directory / "daemon", "agents": self._directory / "agents"}
        database = measures.database(self._engine)
        values = {
            **self._processes.values(),
            **measures.latencies(took),
            "server: CPU ms a request": 1000 * cpu["server"] / requests_sent,
            **measures.index(server, database["rows of resource_providers"]),
            **database,
            **measures.files(states),
        }
        return Sample(now, season, time.monotonic() - began, requests_sent, cpu, values)

    def _act(self) -> dict[str, list[float]]:
        """Let everybody act at once; return the seconds that requests took, by their kind."""
        plan = self._plan
        took: dict[str, list[float]] = {}
        # set when an error or a signal ends the year, so that nobody goes on with a long period
        stop = threading.Event()
        with ThreadPoolExecutor() as pool:
            claims = plan.share(CLAIMS)
            work = [pool.submit(act, took, stop) for act in self._tenants.acts(claims)]
            work.append(pool.submit(self._make_passes, stop))
            url, hosts = self._processes.server.url, plan.share(COMINGS_AND_GOINGS)
            work.append(pool.submit(self._operator.act, url, hosts, stop))
            try:
                wait(work, return_when=FIRST_EXCEPTION)
            finally:
                stop.set()
        for future in work:
            future.result()
        return took

    def _make_passes(self, stop: threading.Event) -> None:
        """Passes of all agents in turn, one of which is a process of its own."""
        for _ in range(self._plan.share(PASSES)):
            if stop.is_set():
                return
            number, agent = divmod(self._passes, self._plan.agents)
            self._passes += 1
            if agent == 0:
                self._others.interfere(number)
                ask_for_pass(self._directory / "daemon")
                continue
            is_completed, _ = self._agents[agent - 1].run_pass()
            if not is_completed:
                raise RuntimeError("a pass of an agent did not complete")
