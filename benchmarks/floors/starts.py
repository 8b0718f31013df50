"""Starts of a placement worker and of an agent, beside Python with the same other packages.

The agent is a daemon on a made-up machine against a server of this run; when its first pass is over
it is left alone for some periods, and every time that one of its threads goes to sleep counts as a
wakeup.
"""

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil

from benchmarks.floors.table import Row
from benchmarks.parts.client import Client
from benchmarks.parts.servers import Server, cpu_seconds, keeping_bytecode, ours, write_config

_WORKERS: Final = 2
_QUIET_PASSES: Final = 20
_OWN: Final = ("placement_server", "compute_agent", "benchmarks", "__main__", "__mp_main__")
_LIST: Final = (
    "import sys; print(' '.join(name for name in sys.modules "
    f"if name.partition('.')[0] not in {_OWN!r}))"
)
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
import compute_agent.cmd.agent.main
from compute_agent.daemon import garbage_collection
with garbage_collection.paused():
    import compute_agent.agent.agent, compute_agent.agent.assembly
"""
# Packages of extras, which others import where they find them.
_HIDDEN: Final = "import sys; sys.modules.update(dict.fromkeys(('osprofiler', 'opentelemetry')))\n"
_OTHERS: Final = """
import contextlib, importlib, sys
for name in open(sys.argv[1]).read().split():
    # parts of packages that only they import
    with contextlib.suppress(ImportError, AttributeError):
        importlib.import_module(name)
"""
# The usage that the kernel reports of a child begins with the memory of its parent.
_RESIDENT: Final = """
for line in open("/proc/self/status").read().splitlines():
    if line.startswith("VmHWM"):
        open({path!r}, "w").write(line.split()[1])
"""
# The first rule of a policy makes oslo.policy look through the entry points of all packages.
_RULE: Final = "from oslo_policy import policy\npolicy.RuleDefault('name', 'role:name')\n"


class Starter:
    """Runs code in fresh interpreters.

    :param runs: how often; the least of them counts, as other work of the machine only adds.
    """

    def __init__(self, directory: Path, runs: int) -> None:
        self._directory = directory
        self._environment = {**keeping_bytecode(), "OS_PLACEMENT_CONFIG_DIR": str(directory)}
        self._runs = runs

    def cost(self, code: str, *arguments: str) -> tuple[float, float]:
        """CPU seconds, and the most resident MiB."""
        costs = [self._run(code, arguments) for _ in range(self._runs)]
        return min(cpu for cpu, _ in costs), statistics.median(memory for _, memory in costs)

    def others(self, code: str, also: str = "") -> tuple[float, float]:
        """The same of importing all that the code does and that is not this project's.

        :param also: what else is unavoidable.
        """
        listed = subprocess.run(
            [sys.executable, "-c", f"{_HIDDEN}{code}\n{_LIST}"],
            env=self._environment,
            check=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        names = self._directory / "modules"
        names.write_bytes(listed.stdout.splitlines()[-1])
        return self.cost(_OTHERS + also, str(names))

    def _run(self, code: str, arguments: tuple[str, ...]) -> tuple[float, float]:
        with open(os.devnull, "wb") as nowhere:
            actions = [(os.POSIX_SPAWN_DUP2, nowhere.fileno(), number) for number in (1, 2)]
            told = self._directory / "resident"
            asked = f"{_HIDDEN}{code}\n{_RESIDENT.format(path=str(told))}"
            command = [sys.executable, "-c", asked, *arguments]
            pid = os.posix_spawn(sys.executable, command, self._environment, file_actions=actions)
            _, status, usage = os.wait4(pid, 0)
        if status:
            raise RuntimeError(f"{code!r} ended with {os.waitstatus_to_exitcode(status)}")
        return usage.ru_utime + usage.ru_stime, int(told.read_text()) / 1024


def rows(*, quick: bool) -> Iterator[Row]:
    """Measure a worker and an agent."""
    runs = 3 if quick else 9
    with tempfile.TemporaryDirectory(prefix="starts-") as name:
        directory = Path(name)
        config = write_config(directory, f"sqlite:///{directory}/placement.db")
        with config.open("a") as stream:
            stream.write("[placement_database]\nsync_on_startup = true\n")
        starter = Starter(directory, runs)
        starter.cost(_WORKER)  # the first one makes the tables
        cpu, memory = starter.cost(_WORKER)
        floor_cpu, floor_memory = starter.others(_WORKER, _RULE)
        yield Row("worker: import", "CPU s", cpu, floor_cpu, 1.3)
        yield Row("worker: import", "MiB", memory)
        yield Row("worker: the packages of others alone", "MiB", floor_memory)
        cpu, _ = starter.cost(_ANSWER)
        yield Row("worker: import and first answer", "CPU s", cpu, floor_cpu, 1.3)
        yield from _workers(directory / "workers", floor_cpu)
        cpu, memory = starter.cost(_AGENT)
        floor_cpu, _ = starter.others(_AGENT)
        yield Row("agent: import", "CPU s", cpu, floor_cpu, 1.3)
        yield Row("agent: import", "MiB", memory, most=40.0)
        with ours(directory / "server", f"sqlite:///{directory}/server.db", 1) as server:
            yield from _idle(server, directory / "agent", 65.0 if quick else 245.0)


def _workers(directory: Path, floor_cpu: float) -> Iterator[Row]:
    """Workers before their first search, which share what their parent has loaded."""
    with ours(directory, f"sqlite:///{directory}/placement.db", _WORKERS) as server:
        time.sleep(2.0)  # the second follows the first
        workers = psutil.Process(server.pid).children()
        memory = [worker.memory_full_info() for worker in workers]
        cpu = min(cpu_seconds(worker.pid) for worker in workers)
    title = f"one of {_WORKERS} workers: "
    yield Row(f"{title}start", "CPU s", cpu, floor_cpu, 1.3)
    yield Row(f"{title}share of memory", "MiB", max(m.pss for m in memory) / 2**20, most=60.0)
    yield Row(f"{title}memory of its own", "MiB", max(m.uss for m in memory) / 2**20)


def _idle(server: Server, directory: Path, seconds: float) -> Iterator[Row]:
    """Leave an agent alone, but for its passes: one a minute, and one a second."""
    with _agent(server, directory / "minutes", 60) as agent:
        asleep, cpu = _sleeps(agent.pid), cpu_seconds(agent.pid)
        time.sleep(seconds)
        asleep, cpu = _sleeps(agent.pid) - asleep, cpu_seconds(agent.pid) - cpu
        memory = agent.memory_full_info()
    yield Row("agent: idle", "wakeups/min", asleep * 60 / seconds, most=12.0)
    yield Row("agent: idle", "CPU ms/min", 1000 * cpu * 60 / seconds)
    yield Row("agent: idle", "MiB", memory.rss / 2**20, most=40.0)
    yield Row("agent: idle, memory of its own", "MiB", memory.uss / 2**20)
    with _agent(server, directory / "seconds", 1) as agent:
        costs = []
        for _ in range(_QUIET_PASSES):
            cpu = cpu_seconds(agent.pid)
            time.sleep(1.0)
            costs.append(cpu_seconds(agent.pid) - cpu)
    # the second in which a pass was just over has none
    yield Row("agent: quiet pass", "CPU ms", 1000 * statistics.median(costs), most=2.0)


@contextlib.contextmanager
def _agent(server: Server, directory: Path, interval: int) -> Iterator[psutil.Process]:
    """An agent that has reported itself, with a pass every so many seconds."""
    directory.mkdir(parents=True)
    name = f"idle-{interval}"
    config = directory / "agent.conf"
    config.write_text(
        f"[DEFAULT]\nhost = {name}\ncompute_driver = fake.FakeNumaDriver\n"
        f"state_path = {directory}\nupdate_resources_interval = {interval}\n"
        f"[placement]\nauth_type = noauth\nendpoint_override = {server.url}\n"
    )
    program = Path(sys.executable).parent / "compute-agent"
    command = [str(program), "run", "--config-file", str(config)]
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
            time.sleep(5.0)  # what a start leaves to do
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
