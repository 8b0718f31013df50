"""A thousand agents against one placement: do they ever come all at once?

The agents are simulated in one process: each has its own report client, tracker, state directory
and kept-alive connections, and the schedule a real one keeps. The server is a process of its own,
with its database on PostgreSQL. Phases: all agents start at once on new hosts, restart at once,
are left alone, lose placement, and get it back. At the end their trees are asked for as often as
those of 100,000 hosts would be.
"""

from __future__ import annotations

import logging
import resource
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.agent import large_fleet
from benchmarks.agent.quiet_phase import LATE, QuietPhase
from benchmarks.agent.simulated_agents import PERIOD, Fleet, SimulatedAgent, Traffic
from benchmarks.parts.postgresql import free_port, postgresql
from benchmarks.parts.servers import Server, ours
from compute_agent import conf as agent_conf

AGENTS = 1000
WORKERS = 2
SERVER_THREADS = 4
PATIENCE = 1200.0
"""Seconds in which all agents get through, also on a busy machine."""
PEAK_OVER_STEADY = 5.0
"""A peak above this many times the steady one is a herd. It is not 1: whoever waits for the end of
an outage asks for the version document meanwhile, again after at most 1, 2, 4, ... 60 seconds."""


@dataclass(frozen=True)
class Lengths:
    """Seconds of the phases, and providers of one host."""

    steady: float
    outage: float
    large: float
    children: int


# A tree of 45 providers is written in 99 requests: as many agents' first start would take two cores
# a quarter of an hour, and say what 13 requests each say.
FULL = Lengths(600.0, 60.0, 60.0, 4)
# A quiet phase of a period and what a pass may be late: every agent must come in it.
QUICK = Lengths(PERIOD + LATE, 20.0, 15.0, 4)


@dataclass
class Phase:
    """What the fleet did in some stretch of time."""

    name: str
    seconds: float
    requests: int
    failed_count: int
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

    def __init__(self, traffic: Traffic, console: Console) -> None:
        self._traffic = traffic
        self._console = console
        self.phases: list[Phase] = []

    def observe(
        self, name: str, server: Server | None, during: Callable[[], tuple[str, bool | None]]
    ) -> Phase:
        """Run `during`, which returns a note and whether what is demanded of the phase held."""
        self._traffic.clear()
        began, cpu = time.monotonic(), _cpu(server)
        note, holds = during()
        seconds, cpu = time.monotonic() - began, _cpu(server) - cpu
        sent_requests = list(self._traffic.sent_requests)
        per_second = Counter(int(at - began) for at, _, _ in sent_requests)
        answer_seconds = sorted(took for _, took, fine in sent_requests if fine) or [0.0]
        phase = Phase(
            name,
            seconds,
            len(sent_requests),
            sum(not fine for _, _, fine in sent_requests),
            max(per_second.values(), default=0),
            1000 * statistics.median(answer_seconds),
            1000 * answer_seconds[int(0.99 * (len(answer_seconds) - 1))],
            cpu,
            note,
            holds,
        )
        self.phases.append(phase)
        # A later phase may fail.
        self._console.print(f"{name}: {seconds:.0f} s, {note}", style="dim")
        return phase


def _cpu(server: Server | None) -> float:
    return server.cpu_seconds() if server is not None else 0.0


def run(console: Console, directory: Path, lengths: Lengths, agents: int, seed: str) -> list[Phase]:
    """The life of a fleet; raises RuntimeError when an agent never gets through."""
    logging.getLogger("compute_agent").setLevel(logging.CRITICAL)
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    conf = agent_conf.new_config([], default_config_files=[], default_config_dirs=[])
    traffic = Traffic()
    observer = Observer(traffic, console)
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
            steady = observer.observe(
                "steady", server, _steady(fleet, agents, lengths.steady, server)
            )

        def away() -> tuple[str, None]:
            time.sleep(lengths.outage)
            return "placement is down", None

        observer.observe("outage", None, away)
        with placement() as server:
            observer.observe("back", server, _back(fleet))
            _judge_herd(observer.phases[-1], steady)
            fleet.stop()
            roots = [host.uuid for host in hosts]
            observer.observe(
                f"at the rate of {large_fleet.HOSTS:,} hosts",
                server,
                _at_large_rate(server, roots, lengths.large),
            )
    return observer.phases


def _starting(fleet: Fleet) -> Callable[[], tuple[str, bool | None]]:
    def during() -> tuple[str, bool | None]:
        began = time.monotonic()
        fleet.start()
        seconds = fleet.wait_for_all(began, PATIENCE)
        return f"all reported after {seconds:.0f} s", None

    return during


def _steady(
    fleet: Fleet, agents: int, seconds: float, server: Server
) -> Callable[[], tuple[str, bool | None]]:
    def during() -> tuple[str, bool | None]:
        traffic = fleet.traffic
        began, cpu = time.monotonic(), server.cpu_seconds()
        time.sleep(seconds)
        # In this order each request that is counted belongs to a pass that is, or to one at work.
        requests, at_work = len(traffic.sent_requests), fleet.at_work
        passes = Counter(name for _, name in list(traffic.passes))
        cpu = server.cpu_seconds() - cpu
        quiet = QuietPhase(
            agents,
            time.monotonic() - began,
            PERIOD,
            requests,
            passes,
            at_work,
            statistics.mean(list(traffic.late) or [0.0]),
        )
        cost = f"{1000 * cpu / max(1, passes.total()):.2f} ms of server CPU a pass"
        return f"{quiet.note()}; {cost}", quiet.holds

    return during


def _at_large_rate(
    server: Server, roots: Sequence[str], seconds: float
) -> Callable[[], tuple[str, bool | None]]:
    def during() -> tuple[str, bool | None]:
        cost = large_fleet.measure(server, roots, seconds)
        return cost.note(), cost.holds

    return during


def _back(fleet: Fleet) -> Callable[[], tuple[str, bool | None]]:
    def during() -> tuple[str, bool | None]:
        seconds = fleet.wait_for_all(time.monotonic(), PATIENCE)
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
        lengths = replace(lengths, steady=steady)
    with tempfile.TemporaryDirectory(prefix="fleet-", dir="/tmp") as name:
        directory = Path(name)
        directory.chmod(0o755)
        phases = run(console, directory, lengths, agents, seed)
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
            str(phase.failed_count),
            f"{phase.rate:.1f}",
            str(phase.peak),
            f"{phase.p50_ms:.1f}",
            f"{phase.p99_ms:.1f}",
            f"{phase.server_cpu / phase.seconds:.2f}",
            phase.note + verdict,
        )
    console.print(table)
    return all(phase.holds is not False for phase in phases)
