"""Growth of an agent: a day's passes and more in a few minutes, on the real daemon.

Once with a driver that makes its machine up, and once with libvirt and a host that has 20 guests.

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

from benchmarks.agent.process_under_test import claim, memory_directory, on_sqlite, tree_of
from benchmarks.parts.client import Client
from benchmarks.parts.servers import START_SECONDS, Server, ours
from compute_agent import errors
from compute_agent.agent import local_socket
from tests.data import machines
from tests.fixtures.libvirtd import libvirtd_missing, running_libvirtd

PASSES = 10_000
GUESTS = 20
LIBVIRT_MIB = 70
"""How large an agent with libvirt may become."""

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


FAKE = """[DEFAULT]
compute_driver = fake.FakeNumaDriver
[fake]
pfs_per_nic = 16
"""


@contextlib.contextmanager
def libvirt_host(directory: Path, name: str) -> Iterator[str]:
    """A libvirtd with guests on a machine of two sockets; yields the agent's options."""
    import libvirt

    machine = machines.make("two-sockets", directory)
    with running_libvirtd(directory, machine, name) as libvirtd:
        connection = libvirt.open(libvirtd.uri)
        for number in range(GUESTS):
            connection.defineXML(
                f"<domain type='qemu'><name>g{number}</name><memory unit='MiB'>64</memory>"
                "<vcpu>2</vcpu><os><type arch='x86_64'>hvm</type></os></domain>"
            )
        connection.close()
        yield (
            "[DEFAULT]\ncompute_driver = libvirt.LibvirtDriver\n"
            f"[libvirt]\nvirt_type = qemu\nconnection_uri = {libvirtd.uri}\n"
            f"[host]\nsysfs_root = {libvirtd.machine}/sys\n"
            f"procfs_root = {libvirtd.machine}/proc\n"
            "[compute]\nenable_numa_reporting_to_placement = true\n"
            "[devices]\nenabled_mdev_types = nvidia-231\n"
        )


@contextlib.contextmanager
def daemon(
    directory: Path, server: Server, host: str, driver: str
) -> Iterator[subprocess.Popen[bytes]]:
    """`compute-agent run`, which makes no pass unless it is asked to.

    :param driver: options of the driver, and which one it is.
    """
    config = directory / "agent.conf"
    config.write_text(
        f"{driver}[DEFAULT]\nhost = {host}\n"
        f"state_path = {directory}/state\nupdate_resources_interval = -1\n"
        "periodic_fuzzy_delay = 0\n"
        f"[placement]\nauth_type = noauth\nendpoint_override = {server.url}\n"
        "[compute]\nresource_provider_association_refresh = 1\n"
        f"provider_config_location = {directory}/none\n"
        "[compute_agent]\naudit_interval = 1\n"
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
            _wait_for_first_pass(directory, process)
            yield process
        finally:
            process.terminate()


def _wait_for_first_pass(directory: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the agent ended: {(directory / 'log').read_text()[-2000:]}")
        with contextlib.suppress(errors.ComputeAgentError):
            nodes = local_socket.ask(_socket(directory), "report", START_SECONDS)["nodes"]
            if nodes and not any(node["startup"] for node in nodes):
                return
        time.sleep(0.1)
    raise RuntimeError(f"no first pass: {(directory / 'log').read_text()[-2000:]}")


def ask_for_pass(directory: Path) -> None:
    """Have the daemon of this directory make a pass, and wait for its end."""
    local_socket.ask(_socket(directory), "report", START_SECONDS)


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
            holders = self._client.must("GET", f"/resource_providers/{cell}/allocations")
            for consumer in list(holders["allocations"])[:-5]:
                self._client.must("DELETE", f"/allocations/{consumer}")
        if number % OVERWRITE_EVERY == 0:
            path = f"/resource_providers/{self._tree[self._host]}/inventories"
            inventories = self._client.must("GET", path)
            inventories["inventories"]["DISK_GB"]["total"] += 1
            self._client.must("PUT", path, inventories)


def run(server: Server, directory: Path, host: str, driver: str, passes: int) -> list[Sample]:
    directory.mkdir()
    samples = []
    with daemon(directory, server, host, driver) as process:
        watched_process = psutil.Process(process.pid)
        others = Others(server, host)
        passes_per_sample = max(1, passes // SAMPLES)
        began = time.monotonic()
        for number in range(1, passes + 1):
            others.interfere(number)
            ask_for_pass(directory)
            if number % passes_per_sample == 0:
                now = time.monotonic()
                samples.append(
                    Sample(
                        number,
                        watched_process.memory_info().rss / 2**20,
                        watched_process.num_threads(),
                        watched_process.num_fds(),
                        1000 * (now - began) / passes_per_sample,
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
    holds = True
    with (
        tempfile.TemporaryDirectory(prefix="soak-", dir=memory_directory()) as name,
        on_sqlite(ours, Path(name) / "ours") as server,
    ):
        directory = Path(name)
        host = f"host-{uuid.uuid4().hex[:8]}"
        samples = run(server, directory / "fake", host, FAKE, passes)
        holds &= _show(console, "One daemon of 45 providers", samples)
        missing_reason = libvirtd_missing()
        if missing_reason:
            console.print(f"not with libvirt: {missing_reason}")
            return holds
        host = f"host-{uuid.uuid4().hex[:8]}"
        with libvirt_host(directory, host) as driver:
            samples = run(server, directory / "libvirt", host, driver, passes)
        holds &= _show(console, f"One daemon with libvirt and {GUESTS} guests", samples)
    largest = max(sample.resident_mib for sample in samples)
    light = largest <= LIBVIRT_MIB
    console.print(
        f"largest {largest:.1f} MiB, at most {LIBVIRT_MIB}: {'holds' if light else 'FAILS'}"
    )
    return holds and light


def _show(console: Console, title: str, samples: list[Sample]) -> bool:
    passes = samples[-1].passes
    table = Table(title=f"{title}, {passes} passes ({passes / PASSES_A_DAY:.1f} days)")
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
    growth = growth_a_day(samples)
    first, last = samples[0], samples[-1]
    steady = last.threads <= first.threads + ONE_ANSWER and last.files <= first.files + ONE_ANSWER
    holds = growth <= GROWTH_A_DAY_MIB and steady
    console.print(
        f"growth {growth:+.3f} MiB a day (second half), at most {GROWTH_A_DAY_MIB}; threads and "
        f"open files {'as at first' if steady else 'GREW'}: {'holds' if holds else 'FAILS'}"
    )
    return holds
