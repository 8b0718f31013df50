"""Running schedulers, a broker of their own, and clients that claim through them."""

import contextlib
import itertools
import math
import operator
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.parts.servers import Server, cpu_seconds
from benchmarks.parts.worlds import Loader, World, uuid_of
from compute_agent import conf as agent_conf
from compute_agent.daemon import message_bus
from compute_agent.scheduler.bus.rpc import STATE_TOPIC, STATE_VERSION, SchedulerClient
from tests.fixtures.rabbitmq import RabbitMq

CLIENTS: Final = 8
_START_SECONDS: Final = 300.0
_NUMBERS: Final = itertools.count()
_NAME: Final = "scheduling-{:06}"


def _host(loader: Loader, number: int) -> None:
    stock = {"VCPU": 1000, "MEMORY_MB": 1_000_000, "DISK_GB": 10_000}
    loader.provider(_NAME.format(number), stock, traits=("COMPUTE_NODE", "OWNER_NOVA"))


def root_of(number: int) -> str:
    """The uuid of a host of these data sets."""
    return uuid_of(_NAME.format(number))


SCHEDULED: Final = World("flat", 500, 50, _host)
MANY_SCHEDULED: Final = World("flat", 5000, 500, _host)


@dataclass(frozen=True)
class Round:
    """What clients got in some seconds, and what it cost.

    :ivar failed_count: claims that ended with an error, such as that of a placement that took too
        long.
    """

    milliseconds: Sequence[float]
    failed_count: int
    seconds: float
    server_cpu_ms: float
    scheduler_cpu_ms: float

    @classmethod
    def of(cls, rounds: Iterable["Round"]) -> "Round":
        """Return several rounds of the same schedulers as one."""
        milliseconds, *sums = zip(*map(astuple, rounds), strict=True)
        return cls(list(itertools.chain.from_iterable(milliseconds)), *map(sum, sums))

    @property
    def claims(self) -> int:
        return len(self.milliseconds)

    def per_claim(self, name: str) -> float:
        """Return the share of a claim in a sum."""
        total: float = getattr(self, name)
        return total / self.claims if self.claims else math.nan


@dataclass
class Schedulers:
    """Some schedulers of one process each, of one placement, on one broker."""

    placement: Server
    broker: RabbitMq
    directory: Path
    count: int
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @contextlib.contextmanager
    def start(self, roots: Sequence[str]) -> Iterator["Schedulers"]:
        """Start them, and announce the hosts with these roots to each.

        The announcement lasts: what agents that announce themselves cost is not measured.
        """
        try:
            for number in range(self.count):
                self._start(f"scheduler{number}")
            self._announce(roots)
            yield self
        finally:
            for process in self._processes.values():
                process.terminate()
            for process in self._processes.values():
                process.wait(60)

    def measure(self, seconds: float) -> Round:
        """Claim for so long, several clients at once, each the next when it has an answer."""
        latencies: list[float] = []
        failures: list[str] = []
        with self._bus() as bus, ThreadPoolExecutor(CLIENTS) as pool:
            client = SchedulerClient(bus, timeout=120.0)
            # connections are opened, and layouts of hosts looked at
            list(pool.map(lambda _: _claim(client), range(CLIENTS)))
            cpu = self._cpu()
            began = time.monotonic()
            ends = began + seconds

            def work() -> None:
                while (start := time.monotonic()) < ends:
                    if failure := _claim(client):
                        failures.append(failure)
                    else:
                        latencies.append(1000 * (time.monotonic() - start))

            for future in [pool.submit(work) for _ in range(CLIENTS)]:
                future.result()
            took = time.monotonic() - began
        server, schedulers = map(operator.sub, self._cpu(), cpu)
        for failure in failures[:1]:
            print(f"{len(failures)} claims failed, the first with {failure}", file=sys.stderr)
        return Round(latencies, len(failures), took, 1000 * server, 1000 * schedulers)

    def _start(self, name: str) -> None:
        state = self.directory / name
        state.mkdir(parents=True)
        config = state / "scheduler.conf"
        config.write_text(
            f"[DEFAULT]\ntransport_url = {self.broker.url}\nhost = {name}\nstate_path = {state}\n"
            "service_down_time = 86400\n"
            f"[placement]\nauth_type = noauth\nendpoint_override = {self.placement.url}\n"
            f"[scheduler]\nworkers = 1\n[compute_scheduler]\njournal_path = {state}/journal\n"
        )
        command = [str(Path(sys.executable).parent / "compute-scheduler"), "--config-file"]
        with (state / "log").open("wb") as output:
            self._processes[name] = subprocess.Popen(
                [*command, str(config), "serve"], stdout=output, stderr=output, env=os.environ
            )

    def _announce(self, roots: Sequence[str]) -> None:
        import oslo_messaging

        nodes = [{"uuid": root, "enabled": True} for root in roots]
        state = {"host": "hosts", "nodes": nodes, "service_version": 1}
        with self._bus() as bus:
            for name, process in self._processes.items():
                target = oslo_messaging.Target(
                    topic=STATE_TOPIC, version=STATE_VERSION, server=name
                )
                client = oslo_messaging.get_rpc_client(bus, target)
                give_up = time.monotonic() + _START_SECONDS
                while True:
                    try:
                        # a call, whose answer shows that it was heard
                        client.prepare(timeout=10.0).call({}, "compute_state", state=state)
                        break
                    except oslo_messaging.MessagingTimeout:
                        if process.poll() is not None or time.monotonic() > give_up:
                            log = (self.directory / name / "log").read_text()[-2000:]
                            raise RuntimeError(f"{name} does not answer: {log}") from None

    @contextlib.contextmanager
    def _bus(self) -> Iterator[Any]:
        config = f"--config-file={self.directory}/scheduler0/scheduler.conf"
        bus = message_bus.open_transport(agent_conf.new_config([config]))
        try:
            yield bus
        finally:
            bus.cleanup()

    def _cpu(self) -> tuple[float, float]:
        schedulers = map(cpu_seconds, [process.pid for process in self._processes.values()])
        return self.placement.cpu_seconds(), sum(schedulers)


def _claim(client: SchedulerClient) -> str:
    """Claim for a new instance; return what it failed with, "" where it did not.

    A server that is so slow that a claim fails is a result, and not the end of the others.
    """
    import oslo_messaging

    flavor = {"vcpus": 1, "memory_mb": 256 + next(_NUMBERS) % 256, "root_gb": 1, "extra_specs": {}}
    spec = {"project_id": "p", "user_id": "u", "flavor": flavor, "image": {"id": "image"}}
    try:
        client.call("claim", spec_obj=spec, instance_uuid=str(uuid.uuid4()))
    except (oslo_messaging.RemoteError, oslo_messaging.MessagingTimeout) as error:
        return str(error).splitlines()[0]
    return ""
