"""Unlimited searches over wide trees, many at once, against one worker of a real server.

Prints the resident memory of the worker before, at the peak and after, how the searches ended, and
how long other requests took meanwhile::

    python -m tests.functional.api.search_storm --searches 200 --at-once 8
"""

from __future__ import annotations

import argparse
import itertools
import sys
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

import psutil
import requests

from tests.fixtures.plain_trees import make_tree

from .served import ADMIN, ServerProcess

MIB = 1024 * 1024
DEVICES = 64
# How long memory may take to go back.
_SETTLING_SECONDS = 20.0
_SAMPLING_SECONDS = 0.02


@dataclass
class Outcome:
    """What a storm was seen to do. Memory in MiB, times in seconds.

    :ivar ended: how many searches ended with each status.
    :ivar refused: how many of them came with Retry-After.
    :ivar details: what the searches that gave up say.
    :ivar latencies: of the other requests.
    """

    before: float = 0.0
    peak: float = 0.0
    after: float = 0.0
    ended: Counter[int] = field(default_factory=Counter)
    refused: int = 0
    details: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    seconds_of_a_search: float = 0.0
    latencies: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        times = sorted(self.latencies)
        return (
            f"searches: {dict(self.ended)} in {self.seconds:.1f} s, {self.refused} told to retry; "
            f"RSS of the worker in MiB: {self.before:.0f} before, {self.peak:.0f} peak, "
            f"{self.after:.0f} after; {len(times)} other requests: median "
            f"{times[len(times) // 2]:.3f} s, the slowest {times[-1]:.3f} s"
        )


class Storm:
    """A server with one worker, and hosts that have 64 devices each.

    :param at_once: how many searches run at a time.
    """

    def __init__(self, server: ServerProcess, at_once: int = 8) -> None:
        self.url = server.url
        self.at_once = at_once
        (self.worker,) = psutil.Process(server.process.pid).children()

    def load(self, hosts: int = 2) -> None:
        """Create the hosts: one whose devices are in few units each, the others one unit each."""
        with self._session() as session:

            def send(method: str, path: str, body: object) -> None:
                answer = session.request(method, self.url + path, json=body, timeout=60)
                answer.raise_for_status()

            for number in range(hosts):
                make_tree({"providers": _host(number)}, send)

    def run(self, searches: int) -> Outcome:
        """Send so many searches, and other requests until the last search has ended."""
        outcome = Outcome()
        self._warm_up()
        outcome.before = outcome.peak = self._resident()
        over = threading.Event()
        with ThreadPoolExecutor(self.at_once + 2) as pool:
            watching = [
                pool.submit(self._sample, outcome, over),
                pool.submit(self._ask_others, outcome, over),
            ]
            begun = time.monotonic()
            try:
                queries = itertools.islice(itertools.cycle(_QUERIES), searches)
                for status, retry_after, detail in pool.map(self._search, queries):
                    outcome.ended[status] += 1
                    outcome.refused += retry_after
                    if status != 200:
                        outcome.details[detail] += 1
            finally:
                outcome.seconds = time.monotonic() - begun
                outcome.seconds_of_a_search = outcome.seconds * self.at_once / searches
                over.set()
            for watcher in watching:
                watcher.result()
        outcome.after = self._settled(outcome.before)
        return outcome

    def _warm_up(self) -> None:
        """Have the worker do once what it always does: what that leaves in memory stays."""
        with self._session() as session:
            for path in _OTHER_REQUESTS * 3:
                session.get(self.url + path, timeout=60).raise_for_status()
        limited = [f"{query}&limit=1000" for query in _QUERIES] * 2
        with ThreadPoolExecutor(2) as pool:
            ended = Counter(pool.map(self._search, limited))
        assert {status for status, _, _ in ended} == {200}, ended

    def _search(self, query: str) -> tuple[int, bool, str]:
        # A connection of its own: the client that gets an answer is gone afterwards.
        answer = requests.get(
            f"{self.url}/allocation_candidates?{query}", headers=ADMIN, timeout=300
        )
        detail = answer.json()["errors"][0]["detail"] if answer.status_code != 200 else ""
        return answer.status_code, "Retry-After" in answer.headers, detail

    def _sample(self, outcome: Outcome, over: threading.Event) -> None:
        while not over.wait(_SAMPLING_SECONDS):
            outcome.peak = max(outcome.peak, self._resident())

    def _ask_others(self, outcome: Outcome, over: threading.Event) -> None:
        with self._session() as session:
            for path in itertools.cycle(_OTHER_REQUESTS):
                begun = time.monotonic()
                answer = session.get(self.url + path, timeout=300)
                outcome.latencies.append(time.monotonic() - begun)
                answer.raise_for_status()
                if over.wait(_SAMPLING_SECONDS):
                    return

    def _settled(self, before: float) -> float:
        """The resident memory once it is near what it was, or when that takes too long."""
        deadline = time.monotonic() + _SETTLING_SECONDS
        while (now := self._resident()) > before + 64 and time.monotonic() < deadline:
            threading.Event().wait(_SAMPLING_SECONDS)
        return now

    def _resident(self) -> float:
        resident: int = self.worker.memory_info().rss
        return resident / MIB

    @staticmethod
    @contextmanager
    def _session() -> Iterator[requests.Session]:
        with requests.Session() as session:
            session.headers.update(ADMIN)
            yield session


def _host(number: int) -> list[dict[str, object]]:
    """A host with its devices; those of the first have several units each."""
    host = str(uuid.uuid4())
    devices: list[dict[str, object]] = [
        {
            "uuid": str(uuid.uuid4()),
            "name": f"host{number}-gpu{device}",
            "parent_provider_uuid": host,
            "inventories": {"VGPU": {"total": 8 if number == 0 else 1}},
            "traits": ["HW_GPU_API_VULKAN"] if device % 2 else [],
        }
        for device in range(DEVICES)
    ]
    return [{"uuid": host, "name": f"host{number}", "parent_provider_uuid": None}, *devices]


def _groups(count: int, policy: str, trait: Callable[[int], str] = lambda _number: "") -> str:
    groups = "&".join(f"resources_{number}=VGPU:1{trait(number)}" for number in range(count))
    return f"{groups}&group_policy={policy}"


def _some_vulkan(number: int) -> str:
    return f"&required_{number}=HW_GPU_API_VULKAN" if number % 2 else ""


_QUERIES = [
    _groups(8, "isolate"),
    _groups(63, "none"),
    _groups(16, "none", _some_vulkan),
    _groups(32, "isolate", _some_vulkan),
    _groups(63, "isolate"),
    _groups(4, "none"),
]
"""Millions of candidates each: many texts, many placements, many amounts that were seen."""

_OTHER_REQUESTS = [
    "/allocation_candidates?resources=VGPU:1&limit=1",
    "/resource_providers?name=host0",
    f"/allocation_candidates?{_groups(8, 'isolate')}&limit=10",
    "/usages?project_id=p",
    "/traits?name=startswith:HW_GPU",
]


@contextmanager
def storm(directory: Path, at_once: int = 8, threads: int = 8, config: str = "") -> Iterator[Storm]:
    """A server in a directory, with its hosts.

    :param threads: requests that it serves at a time.
    """
    arguments = ("--workers", "1", "--threads", str(threads))
    with ServerProcess(directory, *arguments, config=config) as server:
        brewing = Storm(server, at_once)
        brewing.load()
        yield brewing


def main() -> None:
    """Run a storm as long as wanted and print what it did."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--searches", type=int, default=200)
    parser.add_argument("--at-once", type=int, default=8)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as directory,
        storm(Path(directory), options.at_once) as brewing,
    ):
        outcome = brewing.run(options.searches)
        sys.stdout.write(f"{outcome}\n")
        for detail, count in outcome.details.most_common():
            sys.stdout.write(f"{count:6} {detail}\n")


if __name__ == "__main__":
    main()
