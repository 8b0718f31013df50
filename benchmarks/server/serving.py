"""The embedded server against cheroot, for minutes: `python -m benchmarks.server.serving`.

Both serve the same application, one process of eight threads, on the same data in PostgreSQL, to
eight connections that are kept open: reads of providers, searches, claims and their ends. At the
end each is told to stop while the load goes on; afterwards every write that was acknowledged is
looked for. The clients share the machine, so requests per second compare and say little else.
"""

import argparse
import contextlib
import http.client
import itertools
import json
import os
import random
import signal
import statistics
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.parts import postgresql, servers
from benchmarks.parts.client import HEADERS, Client
from benchmarks.parts.servers import Server

HOSTS = 200
THREADS = 8
CONNECTIONS = 8
KINDS = ("gunicorn", "cheroot")


@dataclass
class Load:
    """What one connection did. A write without an answer is in neither of the last two."""

    seconds: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    held_consumers: set[str] = field(default_factory=set)
    ended_consumers: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Course:
    """What became of one server."""

    label: str
    requests: int
    seconds: float
    cpu: float
    latencies: tuple[float, float]
    resident: tuple[float, float]
    threads: tuple[int, int]
    errors: Counter[str]
    stopped_in: float
    writes: int
    lost_count: int


@contextlib.contextmanager
def cheroot(directory: Path, connection: str) -> Iterator[Server]:
    """Our application under cheroot."""
    config = servers.write_config(directory, connection)
    port = postgresql.free_port()
    command = [sys.executable, "-m", "benchmarks.server.cheroot_server", str(config), str(port)]
    command.append(str(THREADS))
    with servers.running_server(
        "cheroot", command, dict(os.environ), port, directory / "log"
    ) as server:
        yield server


@contextlib.contextmanager
def gunicorn(directory: Path, connection: str) -> Iterator[Server]:
    """placement-server serve."""
    with servers.ours(directory, connection, 1, threads=THREADS) as server:
        yield server


def fill(server: Server) -> list[str]:
    """Make the hosts; their uuids."""
    client = Client(server.url)
    hosts = []
    for number in range(HOSTS):
        body: dict[str, object] = {"name": f"host{number}"}
        provider = client.must("POST", "/resource_providers", body)["uuid"]
        stock = {name: {"total": 100_000} for name in ("VCPU", "MEMORY_MB", "DISK_GB")}
        body = {"resource_provider_generation": 0, "inventories": stock}
        client.must("PUT", f"/resource_providers/{provider}/inventories", body)
        hosts.append(provider)
    return hosts


class Connection:
    """One client that works until it is told to stop or the server is gone."""

    def __init__(self, server: Server, hosts: list[str], seed: int) -> None:
        self.load = Load()
        self._hosts = hosts
        self._random = random.Random(seed)
        where = urlsplit(server.url)
        assert where.hostname is not None
        self._http = http.client.HTTPConnection(where.hostname, where.port, timeout=60)

    def work(self, until: threading.Event, stopping: threading.Event) -> None:
        while not until.is_set():
            started_at = time.perf_counter()
            try:
                self._one()
            except (OSError, http.client.HTTPException) as error:
                self._http.close()
                if stopping.is_set():
                    return
                self.load.errors[type(error).__name__] += 1
            self.load.seconds.append(time.perf_counter() - started_at)

    def _one(self) -> None:
        chance = self._random.random()
        host = self._random.choice(self._hosts)
        if chance < 0.4:
            self._ask("GET", f"/resource_providers/{host}")
        elif chance < 0.5:
            self._ask("GET", "/allocation_candidates?resources=VCPU:1,MEMORY_MB:512&limit=10")
        elif chance < 0.8 or not self.load.held_consumers:
            self._claim(host)
        else:
            self._end(self._random.choice(sorted(self.load.held_consumers)[:50]))

    def _claim(self, host: str) -> None:
        consumer = str(uuid.UUID(int=self._random.getrandbits(128), version=4))
        resources = {"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 1}
        body = {
            "allocations": {host: {"resources": resources}},
            "project_id": "project",
            "user_id": "user",
            "consumer_generation": None,
            "consumer_type": "INSTANCE",
        }
        if self._ask("PUT", f"/allocations/{consumer}", body):
            self.load.held_consumers.add(consumer)

    def _end(self, consumer: str) -> None:
        self.load.held_consumers.discard(consumer)
        if self._ask("DELETE", f"/allocations/{consumer}"):
            self.load.ended_consumers.add(consumer)

    def _ask(self, method: str, path: str, body: object = None) -> bool:
        payload = None if body is None else json.dumps(body).encode()
        self._http.request(method, path, body=payload, headers=HEADERS)
        answer = self._http.getresponse()
        answer.read()
        if answer.status >= 400:
            self.load.errors[str(answer.status)] += 1
        return answer.status < 400


def drive(server: Server, hosts: list[str], minutes: float) -> tuple[Course, list[Load]]:
    """Put a server under load, stop it under load."""
    until, stopping = threading.Event(), threading.Event()
    connections = [Connection(server, hosts, seed) for seed in range(CONNECTIONS)]
    workers = [
        threading.Thread(target=connection.work, args=(until, stopping))
        for connection in connections
    ]
    resident, threads = server.resident_mib(), thread_count(server)
    cpu, started_at = server.cpu_seconds(), time.perf_counter()
    for worker in workers:
        worker.start()
    until.wait(60 * minutes)
    seconds, cpu = time.perf_counter() - started_at, server.cpu_seconds() - cpu
    resident_then, threads_then = server.resident_mib(), thread_count(server)
    loads = [connection.load for connection in connections]
    latencies = sorted(itertools.chain.from_iterable(load.seconds[:] for load in loads))
    stopping.set()
    process = psutil.Process(server.pid)
    stop_at = time.perf_counter()
    process.send_signal(signal.SIGTERM)
    with contextlib.suppress(psutil.TimeoutExpired):
        process.wait(60)
    stopped_in = time.perf_counter() - stop_at
    until.set()
    for worker in workers:
        worker.join()
    errors: Counter[str] = Counter()
    for load in loads:
        errors.update(load.errors)
    percentiles = statistics.quantiles(latencies, n=100)
    course = Course(
        server.label,
        len(latencies),
        seconds,
        cpu,
        (percentiles[49], percentiles[98]),
        (resident, resident_then),
        (threads, threads_then),
        errors,
        stopped_in,
        sum(len(load.held_consumers) + len(load.ended_consumers) for load in loads),
        0,
    )
    return course, loads


def thread_count(server: Server) -> int:
    return sum(process.num_threads() for process in servers.family(server.pid))


def lost_writes(server: Server, loads: list[Load]) -> int:
    """How many acknowledged claims are not there, and ended ones that still are."""
    client = Client(server.url)
    wrong = 0
    for load in loads:
        for consumer in load.held_consumers | load.ended_consumers:
            held_allocations = client.must("GET", f"/allocations/{consumer}")["allocations"]
            wrong += bool(held_allocations) != (consumer in load.held_consumers)
    return wrong


def measure(kind: str, directory: Path, cluster: str, minutes: float) -> Course:
    postgresql.drop_database(cluster, kind)
    postgresql.create_database(cluster, kind)
    connection = f"postgresql+psycopg:{cluster}/{kind}"
    with servers.ours(directory / "fill", connection, 1) as filler:
        hosts = fill(filler)
    start = {"gunicorn": gunicorn, "cheroot": cheroot}[kind]
    with start(directory / "serve", connection) as server:
        course, loads = drive(server, hosts, minutes)
    with servers.ours(directory / "check", connection, 1) as checker:
        lost_count = lost_writes(checker, loads)
    return Course(**{**vars(course), "label": kind, "lost_count": lost_count})


def show(console: Console, courses: list[Course]) -> None:
    table = Table(title=f"one process, {THREADS} threads, {CONNECTIONS} connections")
    for name in (
        *("server", "requests/s", "p50 ms", "p99 ms", "CPU ms/request", "MiB start, end"),
        *("threads", "errors", "stopped in s", "writes", "lost"),
    ):
        table.add_column(name, justify="right")
    for course in courses:
        table.add_row(
            course.label,
            f"{course.requests / course.seconds:.0f}",
            *(f"{seconds * 1000:.1f}" for seconds in course.latencies),
            f"{course.cpu / course.requests * 1000:.2f}",
            f"{course.resident[0]:.0f}, {course.resident[1]:.0f}",
            f"{course.threads[0]}, {course.threads[1]}",
            str(dict(course.errors)) if course.errors else "0",
            f"{course.stopped_in:.1f}",
            str(course.writes),
            str(course.lost_count),
        )
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0, help="of load on each (%(default)s)")
    parser.add_argument("--only", choices=KINDS, help="one of them")
    arguments = parser.parse_args()
    kinds = [arguments.only] if arguments.only else KINDS
    with (
        postgresql.temporary_postgresql("serving-") as (cluster, directory),
    ):
        courses = [
            measure(kind, Path(directory) / kind, cluster, arguments.minutes) for kind in kinds
        ]
    show(Console(width=165), courses)
    sys.exit(1 if any(course.lost_count for course in courses) else 0)


if __name__ == "__main__":
    main()
