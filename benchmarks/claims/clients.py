"""Clients that claim: what they do, and what came of it."""

import multiprocessing
import statistics
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.queues import Queue

import orjson

from benchmarks.parts.client import Client
from benchmarks.parts.servers import Server, cpu_seconds

OWNER = {"project_id": "project", "user_id": "user", "consumer_type": "INSTANCE"}


@dataclass(frozen=True)
class Outcome:
    """What one scenario did to one server."""

    scenario: str
    server: str
    claims: int
    conflicts: int
    refused_count: int
    seconds: float
    cpu_seconds: float
    database_seconds: float
    p95_ms: float

    @property
    def rate(self) -> float:
        return self.claims / self.seconds if self.seconds else 0.0

    @property
    def cpu_ms(self) -> float:
        return 1000 * self.cpu_seconds / self.claims if self.claims else 0.0

    @property
    def database_ms(self) -> float:
        return 1000 * self.database_seconds / self.claims if self.claims else 0.0


@dataclass(frozen=True)
class Target:
    """A server and the process of its database, from which all others of it descend."""

    server: Server
    database_pid: int

    def cpu_seconds(self) -> tuple[float, float]:
        """User and system CPU spent so far: by the server, by the database.

        What sessions of the database that have ended spent is not in it.
        """
        return self.server.cpu_seconds(), cpu_seconds(self.database_pid)


def make_provider(
    client: Client, name: str, inventories: dict[str, dict[str, int]], parent: str | None = None
) -> str:
    """Creates a provider with inventories; its uuid."""
    provider = str(uuid.uuid4())
    client.must(
        "POST",
        "/resource_providers",
        {"uuid": provider, "name": name, "parent_provider_uuid": parent},
    )
    client.must(
        "PUT",
        f"/resource_providers/{provider}/inventories",
        {"resource_provider_generation": 0, "inventories": inventories},
    )
    return provider


def claim(client: Client, allocations: dict[str, dict[str, int]]) -> tuple[int, str]:
    """Claims for a new consumer; the status and the error code, if any."""
    body = {
        "allocations": {rp: {"resources": amounts} for rp, amounts in allocations.items()},
        "consumer_generation": None,
        **OWNER,
    }
    status, raw = client.send("PUT", f"/allocations/{uuid.uuid4()}", body)
    if status == 204:
        return status, ""
    return status, orjson.loads(raw)["errors"][0].get("code", "")


@dataclass(frozen=True)
class Tally:
    claimed_count: int
    conflicts: int
    refused_count: int
    latencies_ms: tuple[float, ...]


Worker = Callable[[Client, int], Tally]


def run_clients(target: Target, scenario: str, workers: Sequence[Worker]) -> Outcome:
    """Runs one process per worker against the server at once."""
    context = multiprocessing.get_context("fork")
    results: Queue[Tally] = context.Queue()
    barrier = context.Barrier(len(workers) + 1)

    def body(worker: Worker, index: int) -> None:
        client = Client(target.server.url)
        client.must("GET", "/resource_classes")
        barrier.wait()
        results.put(worker(client, index))

    processes = [
        context.Process(target=body, args=(worker, index)) for index, worker in enumerate(workers)
    ]
    for process in processes:
        process.start()
    barrier.wait()
    before, start = target.cpu_seconds(), time.monotonic()
    tallies = [results.get() for _ in processes]
    seconds = time.monotonic() - start
    after = target.cpu_seconds()
    for process in processes:
        process.join()
    latencies = [ms for tally in tallies for ms in tally.latencies_ms]
    return Outcome(
        scenario,
        target.server.label,
        sum(t.claimed_count for t in tallies),
        sum(t.conflicts for t in tallies),
        sum(t.refused_count for t in tallies),
        seconds,
        after[0] - before[0],
        after[1] - before[1],
        statistics.quantiles(latencies, n=20)[-1] if len(latencies) > 1 else 0.0,
    )


def claiming(count: int, choose: Callable[[Client, int, int], dict[str, dict[str, int]]]) -> Worker:
    """A worker that claims `count` times, repeating what lost a race."""

    def work(client: Client, index: int) -> Tally:
        claimed_count = conflicts = refused_count = 0
        latencies = []
        for number in range(count):
            start = time.monotonic()
            wanted_amounts = choose(client, index, number)
            while True:
                status, code = claim(client, wanted_amounts)
                if status == 204:
                    claimed_count += 1
                elif code == "placement.concurrent_update" or status >= 500:
                    conflicts += 1
                    continue
                else:
                    refused_count += 1
                break
            latencies.append(1000 * (time.monotonic() - start))
        return Tally(claimed_count, conflicts, refused_count, tuple(latencies))

    return work
