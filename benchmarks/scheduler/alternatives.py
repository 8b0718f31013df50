"""Schedulers that take the last slots of a fleet: requests per claim with alternatives and without.

Eight schedulers, processes of their own, claim at the same time on hosts of which each has one slot
left, until nine of ten slots are taken. Each asks for candidates and claims: either one candidate
after the other, or all in one request. The same server and database for both, by turns.
"""

from __future__ import annotations

import multiprocessing
import statistics
import tempfile
import time
import uuid
from dataclasses import dataclass
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks.claims.clients import make_provider
from benchmarks.parts.client import Client
from benchmarks.parts.postgresql import create_database, postgresql
from benchmarks.parts.servers import Server, ours
from compute_agent import conf as agent_conf
from compute_agent.cmd.scheduler.request_options import ClaimWords, spec_of
from compute_agent.placement.transports.keystone import KeystoneTransport
from compute_agent.scheduler import assembly
from compute_agent.testing.transports import RecordingTransport

SCHEDULERS: Final = 8
WORKERS: Final = 2
#: The most requests that a claim with alternatives may cost, the question included. It is more
#: than two when others take the first eight candidates meanwhile.
BOUND: Final = 2.2
#: Of ten slots, as many are taken.
TAKEN_OF_TEN: Final = 9


@dataclass(frozen=True)
class Work:
    """What one scheduler did: requests by kind, and how long each claim took."""

    questions: int
    claims: int
    milliseconds: tuple[float, ...]


@dataclass(frozen=True)
class Run:
    """What all schedulers did to one fleet."""

    works: tuple[Work, ...]
    server_cpu_ms: float

    @property
    def placed_count(self) -> int:
        return sum(len(work.milliseconds) for work in self.works)

    @property
    def questions(self) -> float:
        return sum(work.questions for work in self.works) / self.placed_count

    @property
    def claims(self) -> float:
        return sum(work.claims for work in self.works) / self.placed_count

    @property
    def requests(self) -> float:
        return self.questions + self.claims

    def percentile(self, percent: int) -> float:
        all_milliseconds = [ms for work in self.works for ms in work.milliseconds]
        return statistics.quantiles(all_milliseconds, n=100)[percent - 1]


def run(console: Console, quick: bool) -> bool:
    """Measure and print; return whether claims with alternatives cost no more than they may."""
    hosts = 80 if quick else 400
    table = Table(
        title=f"{SCHEDULERS} schedulers on {hosts} hosts with one slot each, {TAKEN_OF_TEN} of 10 "
        f"taken: PostgreSQL, {WORKERS} worker processes"
    )
    for heading in ("hosts of equal weight", "claims", "GET", "claims sent", "requests", "p50 ms"):
        table.add_column(f"{heading}" + (" per claim" if heading in ("GET", "requests") else ""))
    for heading in ("p95 ms", "server CPU ms"):
        table.add_column(heading)
    holds = True
    with tempfile.TemporaryDirectory(prefix="benchmark-") as name:
        directory = Path(name)
        directory.chmod(0o755)
        with postgresql(directory / "postgresql") as cluster:
            create_database(cluster, "alternatives")
            connection = f"postgresql+psycopg:{cluster}/alternatives"
            with ours(directory / "server", connection, WORKERS) as server:
                for is_spread, order in ((True, "spread by instance"), (False, "in one order")):
                    plain, several = (
                        measure(server, directory, hosts, extensions=way, is_spread=is_spread)
                        for way in ("never", "auto")
                    )
                    for label, result in (("one by one", plain), ("alternatives", several)):
                        table.add_row(f"{order}, {label}", *_cells(result))
                    holds &= several.requests <= BOUND
                    verdict = "holds" if several.requests <= BOUND else "FAILS"
                    table.add_row(
                        f"{plain.requests / several.requests:.2f}x fewer; {verdict}: at most "
                        f"{BOUND:g} requests",
                        end_section=True,
                    )
    console.print(table)
    return holds


def _cells(result: Run) -> tuple[str, ...]:
    return (
        str(result.placed_count),
        f"{result.questions:.2f}",
        f"{result.claims:.2f}",
        f"{result.requests:.2f}",
        f"{result.percentile(50):.0f}",
        f"{result.percentile(95):.0f}",
        f"{result.server_cpu_ms / result.placed_count:.2f}",
    )


def measure(
    server: Server, directory: Path, hosts: int, *, extensions: str, is_spread: bool
) -> Run:
    """Let the schedulers fill a fleet of their own on the server."""
    client = Client(server.url)
    slot = f"CUSTOM_SLOT_{uuid.uuid4().hex[:8].upper()}"
    client.must("PUT", f"/resource_classes/{slot}")
    for _ in range(hosts):
        make_provider(client, f"host-{uuid.uuid4()}", {slot: {"total": 1}})
    config = directory / f"{slot}.conf"
    config.write_text(
        f"[DEFAULT]\nstate_path = {directory}/state\n"
        f"[placement]\nauth_type = noauth\nendpoint_override = {server.url}\n"
        f"[compute_agent]\nuse_placement_extensions = {extensions}\n"
        f"[compute_scheduler]\nspread_equal_hosts = {is_spread}\n"
    )
    claims_per_scheduler = hosts * TAKEN_OF_TEN // 10 // SCHEDULERS
    context = multiprocessing.get_context("fork")
    results: Queue[Work] = context.Queue()
    start = context.Barrier(SCHEDULERS + 1)
    processes = [
        context.Process(target=_schedule, args=(config, slot, claims_per_scheduler, start, results))
        for _ in range(SCHEDULERS)
    ]
    for process in processes:
        process.start()
    start.wait()
    before = server.cpu_seconds()
    works = tuple(results.get(timeout=600) for _ in processes)
    cpu_seconds = server.cpu_seconds() - before
    for process in processes:
        process.join()
    return Run(works, 1000 * cpu_seconds)


def _schedule(
    config: Path, slot: str, instances: int, start: Barrier, results: Queue[Work]
) -> None:
    conf = agent_conf.new_config([f"--config-file={config}"])
    transport = RecordingTransport(KeystoneTransport.from_conf(conf))
    scheduler, client = assembly.scheduler_of(conf, transport)
    client.connect()
    spec = spec_of(ClaimWords(resources=[f"{slot}=1"], project="project", user="user"))
    start.wait()
    transport.clear()
    milliseconds = []
    for _ in range(instances):
        began = time.monotonic()
        scheduler.select_destinations(spec, [str(uuid.uuid4())])
        milliseconds.append(1000 * (time.monotonic() - began))
    questions = sum("/allocation_candidates" in request for request in transport.requests)
    results.put(Work(questions, len(transport.writes), tuple(milliseconds)))
