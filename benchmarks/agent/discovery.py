"""One look at a large host: what the agent asks libvirt and sysfs, and what that costs both sides.

The host is made up (8 NUMA cells, 16 GPUs that make vGPUs, 512 VFs, 200 guests that hold CPUs, VFs
and huge pages), the libvirtd that sees it is real.
"""

from __future__ import annotations

import resource
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

import libvirt
import psutil
from rich.console import Console
from rich.table import Table

from compute_agent.discovery import capture
from compute_agent.discovery.facts import HostTopology, pci_address
from compute_agent.discovery.libvirt import guests, source
from compute_agent.discovery.libvirt.connection import LibvirtConnection
from compute_agent.discovery.libvirt.cpu_features import GuestCpuOptions
from compute_agent.discovery.libvirt.facts import HypervisorReading
from compute_agent.discovery.libvirt.guest_abilities import AbilityReader
from compute_agent.discovery.libvirt.join import join
from compute_agent.discovery.nvml.recorded import RecordedGpus
from compute_agent.discovery.sysfs.reader import read_file
from compute_agent.discovery.topology import Discovery
from compute_agent.virt.layout import LayoutOptions, lay_out
from compute_agent.virt.layout.options import GpuOptions, MdevTypeOptions
from tests.data.machines import large
from tests.fixtures.libvirt_guests import guest_xml, interface_of_host, pinned
from tests.fixtures.libvirtd import Libvirtd, libvirtd_missing, running_libvirtd

GUESTS: Final = 200
LOOKS: Final = 20
OPTIONS: Final = LayoutOptions(
    is_nested=True, gpu=GpuOptions(mdev_types=(MdevTypeOptions("nvidia-222"),))
)

_Result = TypeVar("_Result")


class CountingConnection(LibvirtConnection):
    """A connection that counts what it is asked.

    :ivar count: of calls so far.
    """

    count = 0

    def call(self, name: str, function: Callable[[libvirt.virConnect], _Result]) -> _Result:
        self.count += 1
        return super().call(name, function)


class CountingReader:
    """Reads files, and counts them.

    :ivar count: of files so far.
    """

    count = 0

    def __call__(self, path: str, limit: int) -> bytes:
        self.count += 1
        return read_file(path, limit)


@dataclass
class Step:
    """The costs of one part of a look, in each look so far."""

    name: str
    wall_ms: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)
    daemon_ms: list[float] = field(default_factory=list)
    calls: int = 0
    files: int = 0


class Looks:
    """Looks at one host, part by part."""

    def __init__(self, daemon: Libvirtd, machine: Path) -> None:
        self._connection = CountingConnection(daemon.uri)
        self._abilities = AbilityReader(self._connection, GuestCpuOptions("qemu"))
        self._last_reading: HypervisorReading | None = None
        self._files = CountingReader()
        self._discovery = Discovery(
            str(machine / "sys"),
            str(machine / "proc"),
            gpu_source=RecordedGpus(capture.recorded_gpus(machine)),
            read=self._files,
        )
        self._daemon = psutil.Process(daemon.pid)
        self.steps = {
            name: Step(name)
            for name in ("host by libvirt", "guests by libvirt", "host by sysfs", "join, layout")
        }

    def look(self) -> HostTopology:
        """Look once, as a pass does."""
        reading = self._measure(
            "host by libvirt",
            lambda: source.read(self._connection, self._abilities, self._last_reading),
        )
        self._last_reading = reading
        self._measure("guests by libvirt", lambda: guests.read(self._connection))
        topology = self._measure("host by sysfs", self._discovery.discover)
        host = self._measure("join, layout", lambda: join(reading, topology))
        self._measure("join, layout", lambda: lay_out("host1", host, OPTIONS), same=True)
        return host

    def forget(self) -> None:
        """Forget what was measured: the first look is another thing."""
        for step in self.steps.values():
            step.wall_ms, step.cpu_ms, step.daemon_ms = [], [], []

    def _measure(self, name: str, part: Callable[[], _Result], *, same: bool = False) -> _Result:
        """Do a part of a look; `same`: its cost is added to that of the part before."""
        step = self.steps[name]
        calls, files = self._connection.count, self._files.count
        daemon, cpu, wall = self._daemon_ms(), _cpu_ms(), time.perf_counter()
        result = part()
        costs = (
            (step.wall_ms, 1000 * (time.perf_counter() - wall)),
            (step.cpu_ms, _cpu_ms() - cpu),
            (step.daemon_ms, self._daemon_ms() - daemon),
        )
        for sums, cost in costs:
            sums.append(cost + sums.pop() if same else cost)
        step.calls, step.files = self._connection.count - calls, self._files.count - files
        return result

    def _daemon_ms(self) -> float:
        times = self._daemon.cpu_times()
        return 1000 * float(times.user + times.system)


def _cpu_ms() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return 1000 * (usage.ru_utime + usage.ru_stime)


def show(console: Console, quick: bool) -> bool:
    """Print what each part of a look costs. False: no libvirtd can be started here."""
    missing_reason = libvirtd_missing()
    if missing_reason:
        console.print(f"discovery: {missing_reason}")
        return False
    with tempfile.TemporaryDirectory(prefix="benchmark-") as name:
        machine = large().write(Path(name, "machine"))
        with running_libvirtd(Path(name), machine) as daemon:
            _define_guests(daemon.uri, GUESTS // 10 if quick else GUESTS)
            looks = Looks(daemon, machine)
            host = looks.look()
            looks.forget()
            for _ in range(LOOKS // 10 if quick else LOOKS):
                looks.look()
    table = Table(
        title=f"One look at {len(host.pci_devices)} PCI functions, {len(host.cells)} cells"
    )
    for heading in ("", "ms", "CPU ms", "libvirtd CPU ms", "libvirt calls", "files read"):
        table.add_column(heading, justify="right" if heading else "left")
    steps = looks.steps.values()
    for step in steps:
        table.add_row(
            step.name,
            f"{statistics.median(step.wall_ms):.1f}",
            f"{statistics.median(step.cpu_ms):.1f}",
            f"{statistics.mean(step.daemon_ms):.1f}",  # in hundredths of a second
            str(step.calls),
            str(step.files),
        )
    console.print(table)
    return True


def _define_guests(uri: str, count: int) -> None:
    """Define guests of two pinned CPUs; every other one has a VF."""
    connection = libvirt.open(uri)
    for number in range(count):
        vf = f"0000:{0x10 * (number % 8 + 1) + 1:02x}:{1 + number // 64:02x}.{number // 8 % 8}"
        devices = interface_of_host(pci_address(vf)) if number % 2 else ""
        cpus = (2 * number % 128, (2 * number + 1) % 128)
        connection.defineXML(guest_xml(str(uuid.uuid4()), pinned(*cpus), devices=devices))
    connection.close()
