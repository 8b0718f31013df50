"""Starts of a placement worker and of an agent, beside Python with the same other packages.

The published package has a column: the import of its application, and its idle workers.

The agent is a daemon on a made-up machine against a server of this run; when its first pass is over
it is left alone for some periods, in which all else is measured, and every time that one of its
threads goes to sleep counts as a wakeup.
"""

import contextlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from benchmarks.floors.table import Row
from benchmarks.parts.client import Client
from benchmarks.parts.interpreters import WITHOUT_EXTRAS, Starter
from benchmarks.parts.servers import (
    Server,
    cpu_seconds,
    keeping_bytecode,
    make_schema,
    ours,
    published_server,
    published_venv,
    write_config,
)
from compute_agent.agent import local_socket

_WORKERS: Final = 2
_QUIET_PASSES: Final = 20
_WORKER: Final = "import placement_server.wsgi"
_ANSWER: Final = """
import io
from placement_server.wsgi import application
environ = {
    "REQUEST_METHOD": "GET", "PATH_INFO": "/allocation_candidates", "SCRIPT_NAME": "",
    "QUERY_STRING": "resources=VCPU:1", "SERVER_NAME": "here", "SERVER_PORT": "80",
    "wsgi.url_scheme": "http", "wsgi.input": io.BytesIO(), "HTTP_X_AUTH_TOKEN": "admin",
    "HTTP_OPENSTACK_API_VERSION": "placement 1.39",
}
list(application(environ, lambda status, headers, error=None: None))
"""
_AGENT: Final = """
from compute_agent.cmd.agent import main
with main.imports():
    import compute_agent.agent.agent, compute_agent.agent.assembly
"""
_PROGRAM: Final = f"{WITHOUT_EXTRAS}from compute_agent.cmd.agent.main import main\nsys.exit(main())"
# The first rule of a policy makes oslo.policy look through the entry points of all packages.
_RULE: Final = "from oslo_policy import policy\npolicy.RuleDefault('name', 'role:name')\n"


def rows(*, quick: bool) -> Iterator[Row]:
    """Measure a worker and an agent."""
    with tempfile.TemporaryDirectory(prefix="starts-") as name:
        directory = Path(name)
        with (
            ours(directory / "server", f"sqlite:///{directory}/server.db", 1) as server,
            _agent(server, directory / "minutes", 60) as agent,
        ):
            alone = _IdleAgent(agent, 1 if quick else 4)
            yield from _starts(directory, 1 if quick else 9)
            yield from _quiet_pass(server, directory / "seconds")
            yield from alone.rows()


def _starts(directory: Path, runs: int) -> Iterator[Row]:
    """Measure fresh interpreters."""
    connection = f"sqlite:///{directory}/placement.db"
    write_config(directory, connection)
    make_schema(connection)
    starter = Starter(directory, runs)
    starter.cost(_WORKER)  # the first one leaves its bytecode
    theirs = _measure_published(directory / "published", runs)
    often, some = f"best of {runs}", f"median of {runs}"
    cpu, memory = starter.cost(_WORKER)
    floor_cpu, floor_memory = starter.others(_WORKER, _RULE)
    yield Row(
        "worker: import", "CPU s", cpu, floor_cpu, 1.3, published_value=theirs.cpu_s, runs=often
    )
    yield Row("worker: import", "MiB", memory, published_value=theirs.import_mib, runs=some)
    yield Row("worker: the packages of others alone", "MiB", floor_memory, runs=some)
    cpu, _ = starter.cost(_ANSWER)
    yield Row("worker: import and first answer", "CPU s", cpu, floor_cpu, 1.3, runs=often)
    yield from _workers(directory / "workers", floor_cpu, theirs.idle_mib)
    cpu, memory = starter.cost(_AGENT)
    floor_cpu, _ = starter.others(_AGENT)
    yield Row("agent: import", "CPU s", cpu, floor_cpu, 1.3, runs=often)
    yield Row("agent: import", "MiB", memory, most=40.0, runs=some)


@dataclass(frozen=True)
class _PublishedPackage:
    """The published package: what its import costs, and an idle worker of it has."""

    cpu_s: float
    import_mib: float
    idle_mib: float


def _measure_published(directory: Path, runs: int) -> _PublishedPackage:
    connection = f"sqlite:///{directory}/placement.db"
    with published_server(directory, connection, _WORKERS) as server:
        idle = max(_shares(server))
    starter = Starter(directory, runs, published_venv() / "bin" / "python")
    return _PublishedPackage(*starter.cost("import placement.wsgi.api"), idle)


def _shares(server: Server) -> list[float]:
    """MiB of each worker, its share of what they have together."""
    workers = psutil.Process(server.pid).children()
    return [worker.memory_full_info().pss / 2**20 for worker in workers]


def _workers(directory: Path, floor_cpu: float, published_mib: float) -> Iterator[Row]:
    """Workers before their first search, which share what their parent has loaded."""
    with ours(directory, f"sqlite:///{directory}/placement.db", _WORKERS) as server:
        time.sleep(2.0)  # the second follows the first
        workers = psutil.Process(server.pid).children()
        share = max(_shares(server))
        own = max(worker.memory_full_info().uss for worker in workers)
        cpu = min(cpu_seconds(worker.pid) for worker in workers)
    title, runs = f"one of {_WORKERS} workers: ", "1"
    yield Row(f"{title}start", "CPU s", cpu, floor_cpu, 1.3, runs=runs)
    shared = f"{title}share of memory"
    yield Row(shared, "MiB", share, most=60.0, published_value=published_mib, runs=runs)
    yield Row(f"{title}memory of its own", "MiB", own / 2**20, runs=runs)


class _IdleAgent:
    """An agent that is left alone for some minutes from now on, but for a pass in each."""

    def __init__(self, agent: psutil.Process, minutes: int) -> None:
        self._agent = agent
        self._minutes = minutes
        self._asleep, self._cpu = _sleeps(agent.pid), cpu_seconds(agent.pid)
        self._window = threading.Timer(60.0 * minutes, self._end)
        self._window.start()

    def _end(self) -> None:
        self._asleep = _sleeps(self._agent.pid) - self._asleep
        self._cpu = cpu_seconds(self._agent.pid) - self._cpu

    def rows(self) -> Iterator[Row]:
        """Say what it has done, when the time is over."""
        self._window.join()
        memory, minutes = self._agent.memory_full_info(), self._minutes
        runs = f"{minutes} min"
        yield Row("agent: idle", "wakeups/min", self._asleep / minutes, most=12.0, runs=runs)
        yield Row("agent: idle", "CPU ms/min", 1000 * self._cpu / minutes, runs=runs)
        yield Row("agent: idle", "MiB", memory.rss / 2**20, most=40.0, runs=runs)
        yield Row("agent: idle, memory of its own", "MiB", memory.uss / 2**20, runs=runs)


def _quiet_pass(server: Server, directory: Path) -> Iterator[Row]:
    """Watch an agent with a pass a second."""
    with _agent(server, directory, 1) as agent:
        costs = []
        for _ in range(_QUIET_PASSES):
            cpu = cpu_seconds(agent.pid)
            time.sleep(1.0)
            costs.append(cpu_seconds(agent.pid) - cpu)
    # the second in which a pass was just over has none
    cost = 1000 * statistics.median(costs)
    runs = f"median of {_QUIET_PASSES}"
    yield Row("agent: quiet pass", "CPU ms", cost, most=2.0, runs=runs)


@contextlib.contextmanager
def _agent(server: Server, directory: Path, interval: int) -> Iterator[psutil.Process]:
    """An agent that has reported itself, with a pass every so many seconds."""
    directory.mkdir(parents=True)
    name = f"idle-{interval}"
    config = directory / "agent.conf"
    config.write_text(
        f"[DEFAULT]\nhost = {name}\ncompute_driver = fake.FakeNumaDriver\n"
        f"state_path = {directory}\nupdate_resources_interval = {interval}\n"
        "periodic_fuzzy_delay = 0\n"
        f"[placement]\nauth_type = noauth\nendpoint_override = {server.url}\n"
    )
    command = [sys.executable, "-c", _PROGRAM, "run", "--config-file", str(config)]
    with (
        (directory / "log").open("wb") as log,
        subprocess.Popen(command, env=keeping_bytecode(), stdout=log, stderr=log) as process,
    ):
        try:
            client = Client(server.url)
            while not client.must("GET", f"/resource_providers?name={name}")["resource_providers"]:
                if process.poll() is not None:
                    raise RuntimeError(f"the agent ended; {(directory / 'log').read_text()}")
                time.sleep(0.2)
            # the first pass beside the main thread starts threads
            local_socket.ask(directory / "status.sock", "report", 60.0)
            time.sleep(5.0)
            yield psutil.Process(process.pid)
        finally:
            process.terminate()


def _sleeps(pid: int) -> int:
    """How often the threads of a process have gone to sleep."""
    return sum(
        int(line.split()[1])
        for status in Path(f"/proc/{pid}/task").glob("*/status")
        for line in status.read_text().splitlines()
        if line.startswith("voluntary_ctxt_switches")
    )
