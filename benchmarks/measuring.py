"""What one request costs: latency, server CPU, memory, and how many clients at once are served."""

import contextlib
import json
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.queues import Queue

import orjson

from benchmarks.client import Client
from benchmarks.rows import Row
from benchmarks.servers import Server

TIMEOUT = 60.0
CLIENTS = 10
_LEAST, _MOST = 3, 400
_WARM = 6


@dataclass(frozen=True)
class Measured:
    """What a row cost on one server; with a reason in `failed` when there was no answer.

    :param at_once: requests a second with ten clients, 0 when that was not measured.
    """

    median_ms: float = 0.0
    cpu_ms: float = 0.0
    body: bytes = b""
    runs: int = 0
    resident_mib: float = 0.0
    at_once: float = 0.0
    failed: str = ""

    @property
    def candidates(self) -> int:
        """How many candidates the answer has, 0 when it is not one of candidates."""
        if not self.body.startswith(b"{"):
            return 0
        return len(json.loads(self.body).get("allocation_requests", ()))

    def floor_ms(self) -> float:
        """What it costs to serialise this body, once everything else is known."""
        decoded = orjson.loads(self.body)
        times = []
        for _ in range(20):
            start = time.perf_counter()
            orjson.dumps(decoded)
            times.append(time.perf_counter() - start)
        return 1000 * statistics.median(times)


Start = Callable[[], contextlib.AbstractContextManager[Server]]


def measure_rows(start: Start, rows: list[Row], seconds: float, timeout: float) -> list[Measured]:
    """Measure rows one after the other, on a fresh server after one that gave no answer."""
    results: list[Measured] = []
    while len(results) < len(rows):
        with start() as server:
            for row in rows[len(results) :]:
                results.append(measure(server, row, seconds, timeout))
                if results[-1].failed:
                    break
    return results


def measure(server: Server, row: Row, seconds: float, timeout: float) -> Measured:
    """Ask for about so many seconds, after requests that are not counted."""
    request = row.request()
    client = Client(server.url, timeout)
    failed = ""
    body = b""
    latencies: list[float] = []

    def ask() -> None:
        nonlocal body, failed
        start = time.perf_counter()
        try:
            status, body = request(client)
        except TimeoutError:
            failed = f"none in {timeout:g} s"
            return
        latencies.append(time.perf_counter() - start)
        if status != 200:
            failed = f"{status} after {latencies[-1]:.0f} s"

    before = server.cpu_seconds()
    ask()
    if not failed and latencies[0] < seconds:
        for _ in range(_WARM - 1):
            ask()
        latencies.clear()
        before, ends = server.cpu_seconds(), time.perf_counter() + seconds
        while len(latencies) < _MOST and (
            len(latencies) < _LEAST or time.perf_counter() < ends
        ) and not failed:  # fmt: skip
            ask()
    if failed:
        return Measured(failed=failed)
    cpu = server.cpu_seconds() - before
    at_once = throughput(server, row, seconds) if row.at_once else 0.0
    return Measured(
        1000 * statistics.median(latencies),
        1000 * cpu / len(latencies),
        body,
        len(latencies),
        server.resident_mib(),
        at_once,
    )


def throughput(server: Server, row: Row, seconds: float) -> float:
    """Requests a second that ten client processes get answered together."""
    context = multiprocessing.get_context("fork")
    results: Queue[int] = context.Queue()
    barrier = context.Barrier(CLIENTS + 1)

    def run() -> None:
        client, request = Client(server.url), row.request()
        request(client)
        barrier.wait()
        ends = time.perf_counter() + seconds
        answered = 0
        while not answered or time.perf_counter() < ends:
            status, _body = request(client)
            assert status == 200
            answered += 1
        results.put(answered)

    processes = [context.Process(target=run) for _ in range(CLIENTS)]
    with _running(processes):
        barrier.wait()
        start = time.perf_counter()
        answered = sum(results.get() for _ in processes)
        return answered / (time.perf_counter() - start)


@contextlib.contextmanager
def _running(processes: Sequence[multiprocessing.process.BaseProcess]) -> Iterator[None]:
    for process in processes:
        process.start()
    yield
    for process in processes:
        process.join()
