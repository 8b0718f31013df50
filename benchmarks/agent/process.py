"""One agent under measurement: its real parts, whose passes are made on command.

A process of its own, so that its CPU and memory are the agent's alone. A line of JSON on standard
input is a command, a line on standard output what it cost. Run by
`benchmarks.agent.process_under_test`.
"""

import itertools
import json
import resource
import sys
import time
import uuid
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from compute_agent import conf as agent_conf
from compute_agent.agent import assembly
from compute_agent.placement.transports.keystone import KeystoneTransport
from compute_agent.placement.transports.transport import Request, Response, Transport
from compute_agent.virt.fake import FakeNumaDriver


def resident_mib() -> float:
    """Resident now, in MiB."""
    with open("/proc/self/statm") as stream:
        return int(stream.read().split()[1]) * resource.getpagesize() / 2**20


class InterruptedTransport:
    """A transport that lets another client write just before the agent's next inventory.

    `before_write` is called with the uuid of the provider.
    """

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.before_write: Callable[[str], None] | None = None

    def send(self, request: Request) -> Response:
        write, path = self.before_write, request.path
        if write is not None and request.method == "PUT" and path.endswith("/inventories"):
            self.before_write = None
            write(path.removesuffix("/inventories").rpartition("/")[2])
        return self._inner.send(request)


class MeasuredAgent:
    """The agent of one configuration file."""

    def __init__(self, config_file: str) -> None:
        self._conf = agent_conf.new_config(["--config-file", config_file])
        plain = KeystoneTransport.from_conf(self._conf)
        self._transport = InterruptedTransport(plain)
        self._other = plain
        self._parts = assembly.build(self._conf, transport=self._transport)
        self._tracker = self._parts.tracker(wait=self._pause)
        driver = self._parts.driver
        if not isinstance(driver, FakeNumaDriver):
            raise TypeError(f"{driver} has no machine that could be changed")
        self._driver = driver
        self._machine = driver.machine
        # who sets the same again and again is another agent of this host, and this one gives up
        self._foreign_traits = itertools.cycle(("HW_CPU_X86_VMX", "HW_CPU_X86_SVM"))

    @staticmethod
    def _pause(_seconds: float) -> bool:
        return False

    def start(self) -> dict[str, Any]:
        """Find the node and make its first pass."""
        return self._cost(self._start)

    def _start(self) -> None:
        for name, node in self._parts.setup.nodes().items():
            self._tracker.add_node(name, node)
        self._pass()

    def passes(self, times: int = 1, change: str = "") -> dict[str, Any]:
        """Passes one after the other, each with a change of the machine before it if one is named.

        :param change: `inventory`: the disk grows; `claim`: and another client claims some
            of it before the agent writes; `trait`: or sets a trait; `restored`: the machine is
            as it was.
        """

        others = {"claim": self._claim, "trait": self._set_trait}

        def run() -> None:
            for _ in range(times):
                if change == "restored":
                    self._driver.machine = self._machine
                elif change:
                    self._grow_disk()
                self._transport.before_write = others.get(change)
                self._pass()

        return self._cost(run)

    def close(self) -> dict[str, Any]:
        """End as the agent does; the cache file stays."""
        self._parts.close()
        return {}

    def _pass(self) -> None:
        ((name, _uuid),) = self._tracker.nodes().items()
        result = self._tracker.run_pass(name)
        if not result.completed:
            raise RuntimeError(f"a pass failed: {result.message}")

    def _cost(self, run: Callable[[], None]) -> dict[str, Any]:
        total = self._parts.report.placement.connection.total
        requests, failed_count, by_call = total.requests, total.failed_count, total.by_call.copy()
        self._foreign_cpu = 0.0
        wall, cpu = time.monotonic(), time.process_time()
        run()
        return {
            "wall": time.monotonic() - wall,
            "cpu": time.process_time() - cpu - self._foreign_cpu,
            "requests": total.requests - requests,
            "failed": total.failed_count - failed_count,
            "calls": dict(total.by_call - by_call),
            "resident_mib": resident_mib(),
            "cpu_since_start": time.process_time(),
            "modules": sorted({"numpy", "sqlalchemy", "placement_server"} & set(sys.modules)),
        }

    def _grow_disk(self) -> None:
        disk = self._driver.machine.disk
        if disk is None:
            raise RuntimeError("the fake machine has no disk that could grow")
        grown_disk = replace(disk, size_bytes=disk.size_bytes + 2**30)
        self._driver.machine = replace(self._driver.machine, disk=grown_disk)

    def _claim(self, provider: str) -> None:
        began = time.process_time()
        consumer = str(uuid.uuid4())
        body = {
            "allocations": {provider: {"resources": {"DISK_GB": 1}}},
            "project_id": "p",
            "user_id": "u",
            "consumer_generation": None,
            "consumer_type": "INSTANCE",
        }
        self._sent_by_another("PUT", f"/allocations/{consumer}", body)
        self._foreign_cpu += time.process_time() - began

    def _set_trait(self, provider: str) -> None:
        began = time.process_time()
        path = f"/resource_providers/{provider}/traits"
        content = json.loads(self._sent_by_another("GET", path).content)
        traits = set(content["traits"]) ^ {next(self._foreign_traits)}
        self._sent_by_another("PUT", path, content | {"traits": sorted(traits)})
        self._foreign_cpu += time.process_time() - began

    def _sent_by_another(self, method: str, path: str, body: object = None) -> Response:
        answer = self._other.send(Request(method, path, (1, 38), body))
        if answer.status >= 300:
            raise RuntimeError(f"what was meant to conflict failed: {answer.text}")
        return answer


def main() -> None:
    agent = MeasuredAgent(sys.argv[1])
    import_seconds = time.process_time()
    commands: dict[str, Callable[..., dict[str, Any]]] = {
        "start": agent.start,
        "passes": agent.passes,
        "close": agent.close,
    }
    print(
        json.dumps({"import_cpu": import_seconds, "resident_mib": resident_mib()}),
        flush=True,
    )
    for line in sys.stdin:
        arguments = json.loads(line)
        command = arguments.pop("do")
        print(json.dumps(commands[command](**arguments)), flush=True)
        if command == "close":
            return


if __name__ == "__main__":
    main()
