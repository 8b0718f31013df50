"""Costs of one request: latency, server CPU, memory, and how many clients at once are served."""

import contextlib
import json
import multiprocessing
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.queues import Queue

import orjson

from benchmarks.parts.client import Client
from benchmarks.parts.servers import Server
from benchmarks.reads.rows import Row

TIMEOUT = 60.0
CLIENTS = 10
_LEAST = 3
# CPU times are taken of batches of requests; the best one counts, as other work on the machine only
# ever adds to them.
_BATCHES = 8
_WARM = 6
# What takes longer is asked once.
_SLOW = 5.0


@dataclass(frozen=True)
class Measurement:
    """What a row cost on one server; with a reason in `failure` when there was no answer.

    :param at_once: requests a second with ten clients, 0 when that was not measured.
    """

    median_ms: float = 0.0
    cpu_ms: float = 0.0
    body: bytes = b""
    runs: int = 0
    resident_mib: float = 0.0
    at_once: float = 0.0
    failure: str = ""

    @property
    def candidates(self) -> int:
        """How many candidates the answer has, 0 when it is not one of candidates."""
        if not self.body.startswith(b"{"):
            return 0
        return len(json.loads(self.body).get("allocation_requests", ()))

    def floor_ms(self) -> float:
        """What it costs to serialise this body, once everything else is known."""
        decoded_body = orjson.loads(self.body)
        times = []
        for _ in range(20):
            start = time.process_time()
            orjson.dumps(decoded_body)
            times.append(time.process_time() - start)
        return 1000 * min(times)


def measure_rows(
    start: Callable[[], contextlib.AbstractContextManager[Server]], rows: list[Row], seconds: float
) -> list[Measurement]:
    """Measure rows one after the other, on a fresh server after one that gave no answer."""
    results: list[Measurement] = []
    while len(results) < len(rows):
        with start() as server:
            for row in rows[len(results) :]:
                results.append(measure(server, row, seconds))
                if results[-1].failure:
                    break
    return results


class _Asker:
    """Asks one request again and again, until there is no answer."""

    def __init__(self, server: Server, row: Row) -> None:
        self._server = server
        self._request = row.request()
        self._client = Client(server.url, TIMEOUT)
        self.failure = ""
        self.body = b""
        self.latencies: list[float] = []

    def ask(self) -> None:
        start = time.perf_counter()
        try:
            status, self.body = self._request(self._client)
        except TimeoutError:
            self.failure = f"none in {TIMEOUT:g} s"
            return
        self.latencies.append(time.perf_counter() - start)
        if status != 200:
            self.failure = f"{status} after {self.latencies[-1]:.0f} s"

    def batch(self, seconds: float) -> float:
        """Ask for some seconds, at least once; the server's CPU seconds for one request."""
        asked_count, ends = 0, time.perf_counter() + seconds
        before = self._server.cpu_seconds()
        while not self.failure and (not asked_count or time.perf_counter() < ends):
            self.ask()
            asked_count += 1
        return (self._server.cpu_seconds() - before) / asked_count


def measure(server: Server, row: Row, seconds: float) -> Measurement:
    """Ask for about so many seconds, after requests that are not counted."""
    asker = _Asker(server, row)
    with server.on_one_cpu():
        batches = [asker.batch(0)]
        if not asker.failure and asker.latencies[0] < max(seconds, _SLOW):
            for _ in range(_WARM - 1):
                asker.ask()
            asker.latencies.clear()
            batches.clear()
            ends = time.perf_counter() + seconds
            while not asker.failure and (len(batches) < _LEAST or time.perf_counter() < ends):
                batches.append(asker.batch(seconds / _BATCHES))
    if asker.failure:
        return Measurement(failure=asker.failure)
    at_once = throughput(server, row, seconds) if row.at_once else 0.0
    return Measurement(
        1000 * statistics.median(asker.latencies),
        1000 * min(batches),
        asker.body,
        len(asker.latencies),
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
        answer_count = 0
        while not answer_count or time.perf_counter() < ends:
            status, _body = request(client)
            assert status == 200
            answer_count += 1
        results.put(answer_count)

    processes = [context.Process(target=run) for _ in range(CLIENTS)]
    for process in processes:
        process.start()
    barrier.wait()
    start = time.perf_counter()
    rate = sum(results.get() for _ in processes) / (time.perf_counter() - start)
    for process in processes:
        process.join()
    return rate
