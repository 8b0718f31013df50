"""Does an agent grow? A day's passes and more in a few minutes, on the real daemon.

The daemon is asked for pass after pass over its status socket, while somebody else claims on its
providers, frees again, and overwrites what it reported, so that passes read, write and conflict.
"""

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.agent import claim, memory_directory, on_sqlite, tree_of
from benchmarks.client import Client
from benchmarks.servers import START_SECONDS, Server, ours
from compute_agent import errors
from compute_agent.agent import local_socket

PASSES = 10_000
PASSES_A_DAY = 1440
SAMPLES = 20
CLAIM_EVERY = 10
OVERWRITE_EVERY = 25
GROWTH_A_DAY_MIB = 0.25
"""Of a process of 45 MiB that is to run for years; what the allocator keeps settles before."""


ONE_ANSWER = 1
"""The thread, and the connection, that answers the status socket may be there or gone by then."""


@dataclass(frozen=True)
class Sample:
    """The daemon after so many passes."""

    passes: int
    resident_mib: float
    threads: int
    files: int
    milliseconds: float
    """Mean wall time of a pass since the last sample."""


@contextlib.contextmanager
def daemon(directory: Path, server: Server, host: str) -> Iterator[subprocess.Popen[bytes]]:
    """`compute-agent run`, which makes no pass unless it is asked to."""
    config = directory / "agent.conf"
    config.write_text(
        f"[DEFAULT]\nhost = {host}\ncompute_driver = fake.FakeNumaDriver\n"
        f"state_path = {directory}/state\nupdate_resources_interval = -1\n"
        "periodic_fuzzy_delay = 0\n"
        f"[placement]\nauth_type = noauth\nendpoint_override = {server.url}\n"
        "[compute]\nresource_provider_association_refresh = 1\n"
        f"provider_config_location = {directory}/none\n"
        "[compute_agent]\naudit_interval = 1\n"
        "[fake]\npfs_per_nic = 16\n"
    )
    command = [str(Path(sys.executable).parent / "compute-agent"), "run"]
    with (
        (directory / "log").open("wb") as log,
        subprocess.Popen(
            [*command, "--config-file", str(config)],
            stdout=log,
            stderr=log,
            # Python's own arenas only: what glibc's keep for each thread is not growth
            env={**os.environ, "MALLOC_ARENA_MAX": "2"},
        ) as process,
    ):
        try:
            _wait_for_status(directory, process)
            yield process
        finally:
            process.terminate()


def _wait_for_status(directory: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the agent ended: {(directory / 'log').read_text()[-2000:]}")
        with contextlib.suppress(errors.ComputeAgentError):
            local_socket.ask(_socket(directory), "report", START_SECONDS)
            return
        time.sleep(0.1)
    raise RuntimeError(f"no status: {(directory / 'log').read_text()[-2000:]}")


def _socket(directory: Path) -> Path:
    return directory / "state" / "status.sock"


class Others:
    """Everybody else who uses this host's providers."""

    def __init__(self, server: Server, host: str) -> None:
        self._client = Client(server.url)
        self._tree = tree_of(self._client, host)
        self._host = host

    def interfere(self, number: int) -> None:
        """What happens before pass ``number``."""
        if number % CLAIM_EVERY == 0:
            cell = self._tree[f"{self._host}_NUMA{number // CLAIM_EVERY % 2}"]
            claim(self._client, cell, {"VCPU": 1, "MEMORY_MB": 256})
            held = self._client.must("GET", f"/resource_providers/{cell}/allocations")
            for consumer in list(held["allocations"])[:-5]:
                self._client.must("DELETE", f"/allocations/{consumer}")
        if number % OVERWRITE_EVERY == 0:
            path = f"/resource_providers/{self._tree[self._host]}/inventories"
            inventories = self._client.must("GET", path)
            inventories["inventories"]["DISK_GB"]["total"] += 1
            self._client.must("PUT", path, inventories)


def run(server: Server, directory: Path, passes: int) -> list[Sample]:
    host = f"host-{uuid.uuid4().hex[:8]}"
    directory.mkdir()
    samples = []
    with daemon(directory, server, host) as process:
        watched = psutil.Process(process.pid)
        others = Others(server, host)
        each = max(1, passes // SAMPLES)
        began = time.monotonic()
        for number in range(1, passes + 1):
            others.interfere(number)
            local_socket.ask(_socket(directory), "report", START_SECONDS)
            if number % each == 0:
                now = time.monotonic()
                samples.append(
                    Sample(
                        number,
                        watched.memory_info().rss / 2**20,
                        watched.num_threads(),
                        watched.num_fds(),
                        1000 * (now - began) / each,
                    )
                )
                began = now
    return samples


def growth_a_day(samples: list[Sample]) -> float:
    """MiB in as many passes as a day has, by the slope of the second half."""
    late = samples[len(samples) // 2 :]
    slope, _ = statistics.linear_regression(
        [sample.passes for sample in late], [sample.resident_mib for sample in late]
    )
    return slope * PASSES_A_DAY


def show(console: Console, quick: bool) -> bool:
    """Run and print; whether the agent stays as large as it is."""
    passes = PASSES // 2 if quick else PASSES
    with (
        tempfile.TemporaryDirectory(prefix="soak-", dir=memory_directory()) as name,
        on_sqlite(ours, Path(name) / "ours") as server,
    ):
        samples = run(server, Path(name) / "agent", passes)
    table = Table(title=f"One daemon of 45 providers, {passes} passes ({passes / 1440:.1f} days)")
    for heading in ("passes", "resident MiB", "threads", "open files", "ms per pass"):
        table.add_column(heading, justify="right")
    for sample in samples:
        table.add_row(
            str(sample.passes),
            f"{sample.resident_mib:.2f}",
            str(sample.threads),
            str(sample.files),
            f"{sample.milliseconds:.1f}",
        )
    console.print(table)
    grown = growth_a_day(samples)
    first, last = samples[0], samples[-1]
    steady = last.threads <= first.threads + ONE_ANSWER and last.files <= first.files + ONE_ANSWER
    holds = grown <= GROWTH_A_DAY_MIB and steady
    console.print(
        f"growth {grown:+.3f} MiB a day (second half), at most {GROWTH_A_DAY_MIB}; threads and "
        f"open files {'as at first' if steady else 'GREW'}: {'holds' if holds else 'FAILS'}"
    )
    return holds
