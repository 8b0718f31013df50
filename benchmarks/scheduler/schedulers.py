"""Running schedulers, a broker of their own, and clients that claim through them."""

import contextlib
import itertools
import math
import operator
import os
import statistics
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import requests
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.parts.postgresql import free_port
from benchmarks.parts.servers import Server, cpu_seconds
from benchmarks.parts.worlds import Loader, World, uuid_of
from compute_agent import conf as agent_conf
from compute_agent.daemon import message_bus
from compute_agent.scheduler.bus.rpc import STATE_TOPIC, STATE_VERSION, SchedulerClient
from tests.fixtures.rabbitmq import RabbitMq

CLIENTS: Final = 8
_START_SECONDS: Final = 300.0
_STOP_SECONDS: Final = 60.0
_ANSWER_SECONDS: Final = 120.0
_RETRIES: Final = "compute_scheduler_claim_retries_total"
_SPEC: Final[dict[str, Any]] = {
    "project_id": "project",
    "user_id": "user",
    "flavor": {"vcpus": 1, "memory_mb": 512, "root_gb": 1, "extra_specs": {}},
    "image": {"id": "image", "properties": {}},
}


_NUMBERS: Final = itertools.count()
_TRAITS: Final = ("COMPUTE_NODE", "OWNER_NOVA")


def _host(loader: Loader, number: int) -> None:
    stock = {"VCPU": 1000, "MEMORY_MB": 1_000_000, "DISK_GB": 10_000}
    loader.provider(_name(number), stock, traits=_TRAITS)


def _name(number: int) -> str:
    return f"scheduling-{number:06}"


def root_of(number: int) -> str:
    """The uuid of a host of these data sets."""
    return uuid_of(_name(number))


SCHEDULED: Final = World("flat", 500, 50, _host)
MANY_SCHEDULED: Final = World("flat", 5000, 500, _host)


@dataclass(frozen=True)
class Round:
    """What clients got in some seconds, and what it cost.

    :ivar failed_count: claims that ended with an error, such as that of a placement that took too
        long.
    :ivar retries: claims that were tried after another of the same instance was lost.
    """

    milliseconds: tuple[float, ...]
    failed_count: int
    seconds: float
    retries: float
    server_cpu_ms: float
    scheduler_cpu_ms: float

    @property
    def claims(self) -> int:
        return len(self.milliseconds)


@dataclass(frozen=True)
class Rounds:
    """Rounds of the same schedulers."""

    rounds: tuple[Round, ...]

    @property
    def claims(self) -> int:
        return sum(round_.claims for round_ in self.rounds)

    @property
    def rate(self) -> float:
        """Claims per second, the median of the rounds."""
        return statistics.median(round_.claims / round_.seconds for round_ in self.rounds)

    def percentile(self, percent: int) -> float:
        """Milliseconds that so many of a hundred claims took at most."""
        every = [ms for round_ in self.rounds for ms in round_.milliseconds]
        return statistics.quantiles(every, n=100)[percent - 1] if len(every) > 1 else math.nan

    def per_claim(self, name: str) -> float:
        total: float = sum(getattr(round_, name) for round_ in self.rounds)
        return total / self.claims if self.claims else math.nan

    @property
    def failed_count(self) -> int:
        return sum(round_.failed_count for round_ in self.rounds)


@dataclass
class Schedulers:
    """Some schedulers of one process each, of one placement, on one broker."""

    placement: Server
    broker: RabbitMq
    directory: Path
    count: int
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _metrics: list[str] = field(default_factory=list)
    _configs: list[Path] = field(default_factory=list)

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
                try:
                    process.wait(_STOP_SECONDS)
                except subprocess.TimeoutExpired:
                    # its workers end when it is gone
                    process.kill()
                    process.wait()

    def measure(self, seconds: float) -> Round:
        """Claim for so long, several clients at once, each the next when it has an answer."""
        latencies: list[float] = []
        failures: list[str] = []
        with self._bus() as bus, ThreadPoolExecutor(CLIENTS) as pool:
            client = SchedulerClient(bus, timeout=_ANSWER_SECONDS)
            # connections are opened, and layouts of hosts looked at
            list(pool.map(lambda _: _claim(client), range(CLIENTS)))
            retries, cpu = self._retries(), self._cpu()
            began = time.monotonic()
            ends = began + seconds
            lock = threading.Lock()

            def work() -> None:
                while (start := time.monotonic()) < ends:
                    failure = _claim(client)
                    with lock:
                        if failure:
                            failures.append(failure)
                        else:
                            latencies.append(1000 * (time.monotonic() - start))

            for future in [pool.submit(work) for _ in range(CLIENTS)]:
                future.result()
            took = time.monotonic() - began
        # before the metrics are asked for, which costs each scheduler as much as some claims
        server, schedulers = map(operator.sub, self._cpu(), cpu)
        retries = self._retries() - retries
        for failure in failures[:1]:
            print(f"{len(failures)} claims failed, the first with {failure}", file=sys.stderr)
        latency = tuple(latencies)
        return Round(latency, len(failures), took, retries, 1000 * server, 1000 * schedulers)

    def _start(self, name: str) -> None:
        state = self.directory / name
        state.mkdir(parents=True)
        port = free_port()
        config = state / "scheduler.conf"
        config.write_text(
            f"[DEFAULT]\ntransport_url = {self.broker.url}\nhost = {name}\nstate_path = {state}\n"
            "service_down_time = 86400\n"
            f"[placement]\nauth_type = noauth\nendpoint_override = {self.placement.url}\n"
            f"[scheduler]\nworkers = 1\n[compute_scheduler]\njournal_path = {state}/journal\n"
            f"metrics_bind = 127.0.0.1:{port}\n"
        )
        command = [str(Path(sys.executable).parent / "compute-scheduler"), "--config-file"]
        with (state / "log").open("wb") as output:
            self._processes[name] = subprocess.Popen(
                [*command, str(config), "serve"], stdout=output, stderr=output, env=os.environ
            )
        self._metrics.append(f"http://127.0.0.1:{port}/metrics")
        self._configs.append(config)

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
                patience = 5.0
                while True:
                    try:
                        # a call, whose answer shows that it was heard
                        client.prepare(timeout=patience).call({}, "compute_state", state=state)
                        break
                    except oslo_messaging.MessagingTimeout:
                        # on a machine with much else to do an answer may take longer
                        patience = min(2 * patience, 60.0)
                        if process.poll() is None and time.monotonic() < give_up:
                            continue
                        log = (self.directory / name / "log").read_text()[-2000:]
                        raise RuntimeError(f"{name} does not answer: {log}") from None

    @contextlib.contextmanager
    def _bus(self) -> Iterator[Any]:
        bus = message_bus.open_transport(
            agent_conf.new_config([f"--config-file={self._configs[0]}"])
        )
        try:
            yield bus
        finally:
            bus.cleanup()

    def _retries(self) -> float:
        texts = [requests.get(url, timeout=10).text for url in self._metrics]
        families = itertools.chain.from_iterable(map(text_string_to_metric_families, texts))
        return sum(s.value for family in families for s in family.samples if s.name == _RETRIES)

    def _cpu(self) -> tuple[float, float]:
        schedulers = map(cpu_seconds, [process.pid for process in self._processes.values()])
        return self.placement.cpu_seconds(), sum(schedulers)


def _claim(client: SchedulerClient) -> str:
    """Claim for a new instance; return what it failed with, "" where it did not.

    A server that is so slow that a claim fails is a result, and not the end of the others.
    """
    import oslo_messaging

    flavor = {**_SPEC["flavor"], "memory_mb": 256 + next(_NUMBERS) % 256}
    try:
        client.call("claim", spec_obj={**_SPEC, "flavor": flavor}, instance_uuid=str(uuid.uuid4()))
    except (oslo_messaging.RemoteError, oslo_messaging.MessagingTimeout) as error:
        return str(error).splitlines()[0]
    return ""
