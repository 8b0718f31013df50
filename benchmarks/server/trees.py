"""Costs of whole trees beside the plain way: requests, and server CPU of each.

The machine has 45 providers (root, 2 NUMA cells, 8 GPUs with a child each, 2 x 13 ports).
The plain way is what the agent sends to a server without the extensions: a request for each
provider, and for each of inventories, traits and aggregates that it has. Server and database are
processes of their own; the CPU is the server's alone, of one worker.
"""

import http.client
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import orjson
from rich.console import Console
from rich.table import Table

from benchmarks.parts.client import HEADERS
from benchmarks.parts.postgresql import temporary_postgresql
from benchmarks.parts.servers import Server, ours

VERSION: Final = "placement 1.39, placement-ext 1.1"
CONSUMERS: Final = 50
CLIENTS: Final = 8
_THREADS: Final = 16
#: As many parts a measurement has, of which the best one counts.
_PARTS: Final = 20


@dataclass(frozen=True)
class Cost:
    """One way of doing something: requests, and server CPU in milliseconds, per time done."""

    requests: float
    cpu_ms: float


@dataclass(frozen=True)
class Event:
    """What is compared; ``most_ms``: what the one request may cost, `None` where it is a ratio.

    :ivar share: the most of the plain way's CPU, `None` where it is absolute.
    """

    name: str
    plain: Cost
    whole: Cost
    most_ms: float | None = None
    share: float | None = None

    @property
    def holds(self) -> bool:
        """Whether the bound holds."""
        most = self.most_ms if self.share is None else self.share * self.plain.cpu_ms
        return most is None or self.whole.cpu_ms <= most


def machine() -> list[dict[str, Any]]:
    """Return the providers of a new machine, as PUT /provider_trees takes them."""
    providers: list[dict[str, Any]] = []
    name = f"host-{uuid.uuid4().hex[:8]}"

    def add(
        suffix: str, parent: str | None, traits: list[str], aggregates: list[str], **totals: int
    ) -> str:
        provider = str(uuid.uuid4())
        providers.append(
            {
                "uuid": provider,
                "name": f"{name}{suffix}",
                "parent_provider_uuid": parent,
                "inventories": {key: {"total": total} for key, total in totals.items()},
                "traits": traits,
                "aggregates": aggregates,
            }
        )
        return provider

    root = add("", None, ["COMPUTE_NODE"], [str(uuid.uuid4())], DISK_GB=2000)
    for cell in range(2):
        numa = add(f"_numa_{cell}", root, ["HW_NUMA_ROOT"], [], VCPU=64, MEMORY_MB=262_144)
        for gpu in range(4):
            card = add(f"_gpu_{cell}{gpu}", numa, ["CUSTOM_GPU"], [], PGPU=1)
            add(f"_vgpu_{cell}{gpu}", card, [], [], VGPU=16)
        for port in range(13):
            add(f"_nic_{cell}_{port}", numa, ["CUSTOM_PHYSNET_A"], [], SRIOV_NET_VF=8)
    return providers


class Meter:
    """Sends requests to a server, and counts them."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._connection = http.client.HTTPConnection(urlsplit(server.url).netloc)
        self.requests = 0

    def send(
        self, method: str, path: str, body: object = None, **conditions: str
    ) -> tuple[str, bytes]:
        """Return the entity tag and the body of the answer.

        :raises RuntimeError: it is an error.
        """
        self.requests += 1
        headers = {**HEADERS, "OpenStack-API-Version": VERSION}
        headers |= {name.replace("_", "-"): value for name, value in conditions.items()}
        content = None if body is None else orjson.dumps(body)
        self._connection.request(method, path, content, headers)
        answer = self._connection.getresponse()
        raw = answer.read()
        if answer.status >= 400:
            raise RuntimeError(f"{method} {path}: {answer.status} {raw[:500]!r}")
        return answer.headers.get("etag", ""), raw

    def cost(self, times: int, action: Callable[[], None]) -> Cost:
        """Do something this often, after once that does not count; the CPU of the best part of it.

        Other work of the machine only ever adds to the CPU.
        """
        action()
        requests = self.requests
        part = max(1, times // _PARTS)
        parts = []
        for _ in range(times // part):
            cpu = self.server.cpu_seconds()
            for _ in range(part):
                action()
            parts.append(1000 * (self.server.cpu_seconds() - cpu) / part)
        return Cost((self.requests - requests) / (part * len(parts)), min(parts))


def start_plainly(meter: Meter) -> None:
    """Report a new machine, a request for each provider and for each thing that it has."""
    for provider in machine():
        identity = {key: provider[key] for key in ("uuid", "name", "parent_provider_uuid")}
        meter.send("POST", "/resource_providers", identity)
        path = f"/resource_providers/{provider['uuid']}"
        generation = 0
        for key in ("inventories", "traits", "aggregates"):
            if provider[key]:
                body = {key: provider[key], "resource_provider_generation": generation}
                generation = orjson.loads(meter.send("PUT", f"{path}/{key}", body)[1])[
                    "resource_provider_generation"
                ]


def start_at_once(meter: Meter) -> str:
    """Report a new machine in one request; return its entity tag."""
    providers = machine()
    path = f"/provider_trees/{providers[0]['uuid']}"
    return meter.send("PUT", path, {"providers": providers}, If_None_Match="*")[0]


class ReshapedMachine:
    """A machine with consumers of its processors, which move between the root and a cell.

    :param meter: sends the requests.
    """

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._providers = machine()
        root, cell = self._providers[:2]
        root["inventories"]["VCPU"] = cell["inventories"].pop("VCPU")
        meter.send("PUT", self._path, {"providers": self._providers}, If_None_Match="*")
        self._consumers = [str(uuid.uuid4()) for _ in range(CONSUMERS)]
        self._generation = 1
        for consumer in self._consumers:
            claim = {
                "allocations": {root["uuid"]: {"resources": {"VCPU": 1}}},
                "project_id": "project",
                "user_id": "user",
                "consumer_generation": None,
                "consumer_type": "INSTANCE",
            }
            meter.send("PUT", f"/allocations/{consumer}", claim)

    @property
    def _path(self) -> str:
        return f"/provider_trees/{self._providers[0]['uuid']}"

    def _move(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Move the inventory; return the providers that have it no more, and from now on."""
        first, second = self._providers[:2]
        old, new = (first, second) if "VCPU" in first["inventories"] else (second, first)
        new["inventories"]["VCPU"] = old["inventories"].pop("VCPU")
        return old, new

    def at_once(self) -> None:
        """Read, and move inventory and allocations in one request."""
        tag, _ = self._meter.send("GET", f"{self._path}?include=allocations")
        old, new = self._move()
        body = {
            "providers": [old, new],
            "allocations": {
                consumer: {
                    "allocations": {new["uuid"]: {"resources": {"VCPU": 1}}},
                    "consumer_generation": self._generation,
                }
                for consumer in self._consumers
            },
        }
        self._meter.send("PUT", self._path, body, If_Match=tag)
        self._generation += 1

    def plainly(self) -> None:
        """Read every provider and consumer, and reshape."""
        for provider in self._providers:
            for key in ("inventories", "traits", "aggregates"):
                self._meter.send("GET", f"/resource_providers/{provider['uuid']}/{key}")
        for consumer in self._consumers:
            self._meter.send("GET", f"/allocations/{consumer}")
        old, new = self._move()
        body = {
            "inventories": {
                provider["uuid"]: {
                    "resource_provider_generation": orjson.loads(
                        self._meter.send("GET", f"/resource_providers/{provider['uuid']}")[1]
                    )["generation"],
                    "inventories": provider["inventories"],
                }
                for provider in (old, new)
            },
            "allocations": {
                consumer: {
                    "allocations": {new["uuid"]: {"resources": {"VCPU": 1}}},
                    "project_id": "project",
                    "user_id": "user",
                    "consumer_type": "INSTANCE",
                    "consumer_generation": self._generation,
                }
                for consumer in self._consumers
            },
        }
        self._meter.send("POST", "/reshaper", body)
        self._generation += 1


def quiet_at_once(server: Server, passes: int) -> Cost:
    """Let several clients ask at the same time whether their tree has changed, as `Meter.cost`."""
    meters = [Meter(server) for _ in range(CLIENTS)]
    paths = []
    for meter in meters:
        providers = machine()
        path = f"/provider_trees/{providers[0]['uuid']}"
        tag = meter.send("PUT", path, {"providers": providers}, If_None_Match="*")[0]
        paths.append((path, tag))
        meter.send("GET", path, If_None_Match=tag)
    part = passes // _PARTS

    def ask(number: int) -> None:
        path, tag = paths[number]
        for _ in range(part):
            meters[number].send("GET", path, If_None_Match=tag)

    costs = []
    with ThreadPoolExecutor(CLIENTS) as pool:
        for _ in range(_PARTS):
            cpu = server.cpu_seconds()
            list(pool.map(ask, range(CLIENTS)))
            costs.append(1000 * (server.cpu_seconds() - cpu) / (part * CLIENTS))
    return Cost(1.0, min(costs))


def measure(server: Server, quick: bool) -> list[Event]:
    """Measure every event, both ways one after the other."""
    few, many = (4, 1000) if quick else (20, 4000)
    meter = Meter(server)
    providers = machine()
    root, path = providers[0]["uuid"], f"/provider_trees/{providers[0]['uuid']}"
    tag = meter.send("PUT", path, {"providers": providers}, If_None_Match="*")[0]
    reshaped_machine = ReshapedMachine(meter)
    in_tree = f"/resource_providers?in_tree={root}"
    quiet = meter.cost(few * 10, lambda: void(meter.send("GET", in_tree)))
    return [
        Event(
            "first start of 45 providers",
            meter.cost(few, lambda: start_plainly(meter)),
            meter.cost(few, lambda: void(start_at_once(meter))),
            share=0.1,
        ),
        Event(
            f"reshape with {CONSUMERS} consumers",
            meter.cost(few, reshaped_machine.plainly),
            meter.cost(few, reshaped_machine.at_once),
            most_ms=30.0,
        ),
        Event(
            "quiet pass, one client",
            quiet,
            meter.cost(many, lambda: void(meter.send("GET", path, If_None_Match=tag))),
            most_ms=0.5,
        ),
        Event(f"quiet pass, {CLIENTS} clients", quiet, quiet_at_once(server, many // CLIENTS), 0.5),
    ]


def void(_answer: object) -> None:
    """Leave an answer alone."""


def show(console: Console, quick: bool) -> bool:
    """Print what each event costs; return whether all bounds hold."""
    with temporary_postgresql("trees-") as (cluster, directory):
        connection = f"postgresql+psycopg:{cluster}/ours"
        with ours(directory / "server", connection, 1, threads=_THREADS) as server:
            events = measure(server, quick)
    table = Table(title="Whole trees: requests and server CPU, in ms, each time")
    for heading in ("event", "plain requests", "CPU", "whole requests", "CPU", "at most", "holds"):
        table.add_column(heading, justify="left" if heading == "event" else "right")
    for event in events:
        most = event.most_ms if event.share is None else event.share * event.plain.cpu_ms
        table.add_row(
            event.name,
            f"{event.plain.requests:.0f}",
            f"{event.plain.cpu_ms:.2f}",
            f"{event.whole.requests:.0f}",
            f"{event.whole.cpu_ms:.2f}",
            "" if most is None else f"{most:.2f}",
            "yes" if event.holds else "no",
        )
    console.print(table)
    return all(event.holds for event in events)
