"""Claims under concurrency: rate, latency, conflicts, CPU, and whether the books stay exact.

Compares the published package under uWSGI with placement-server: the same PostgreSQL, number of
workers, and data through the API. Client processes share the machine with the servers, so rates
are lower bounds; CPU seconds are the server's own.
"""

import json
import multiprocessing
import statistics
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.queues import Queue

from benchmarks.client import Client
from benchmarks.servers import Server

OWNER = {"project_id": "project", "user_id": "user", "consumer_type": "INSTANCE"}


@dataclass(frozen=True)
class Outcome:
    """What one scenario did to one server."""

    scenario: str
    server: str
    claims: int
    conflicts: int
    refused: int
    seconds: float
    cpu_seconds: float
    p95_ms: float
    note: str = ""

    @property
    def rate(self) -> float:
        return self.claims / self.seconds if self.seconds else 0.0

    @property
    def cpu_ms(self) -> float:
        return 1000 * self.cpu_seconds / self.claims if self.claims else 0.0


def make_provider(
    client: Client, name: str, inventories: dict[str, dict[str, int]], parent: str | None = None
) -> str:
    """Creates a provider with inventories; its uuid."""
    provider = str(uuid.uuid4())
    client.must(
        "POST",
        "/resource_providers",
        {"uuid": provider, "name": name, "parent_provider_uuid": parent},
    )
    client.must(
        "PUT",
        f"/resource_providers/{provider}/inventories",
        {"resource_provider_generation": 0, "inventories": inventories},
    )
    return provider


def claim(client: Client, allocations: dict[str, dict[str, int]]) -> tuple[int, str]:
    """Claims for a new consumer; the status and the error code, if any."""
    body = {
        "allocations": {rp: {"resources": amounts} for rp, amounts in allocations.items()},
        "consumer_generation": None,
        **OWNER,
    }
    status, raw = client.send("PUT", f"/allocations/{uuid.uuid4()}", body)
    if status == 204:
        return status, ""
    return status, json.loads(raw)["errors"][0].get("code", "")


@dataclass(frozen=True)
class Tally:
    claimed: int
    conflicts: int
    refused: int
    latencies_ms: tuple[float, ...]


Worker = Callable[[Client, int], Tally]


def run_clients(
    server: Server, scenario: str, workers: Sequence[Worker], note: str = ""
) -> Outcome:
    """Runs one process per worker against the server at once."""
    results: Queue[Tally] = multiprocessing.Queue()
    barrier = multiprocessing.Barrier(len(workers) + 1)

    def body(worker: Worker, index: int) -> None:
        client = Client(server.url)
        client.must("GET", "/resource_classes")
        barrier.wait()
        results.put(worker(client, index))

    processes = [
        multiprocessing.Process(target=body, args=(worker, index))
        for index, worker in enumerate(workers)
    ]
    for process in processes:
        process.start()
    barrier.wait()
    cpu, start = server.cpu_seconds(), time.monotonic()
    tallies = [results.get() for _ in processes]
    seconds = time.monotonic() - start
    cpu = server.cpu_seconds() - cpu
    for process in processes:
        process.join()
    latencies = [ms for tally in tallies for ms in tally.latencies_ms]
    return Outcome(
        scenario,
        server.label,
        sum(t.claimed for t in tallies),
        sum(t.conflicts for t in tallies),
        sum(t.refused for t in tallies),
        seconds,
        cpu,
        statistics.quantiles(latencies, n=20)[-1] if len(latencies) > 1 else 0.0,
        note,
    )


def claiming(count: int, choose: Callable[[Client, int, int], dict[str, dict[str, int]]]) -> Worker:
    """A worker that claims `count` times, repeating what lost a race."""

    def work(client: Client, index: int) -> Tally:
        claimed = conflicts = refused = 0
        latencies = []
        for number in range(count):
            start = time.monotonic()
            wanted = choose(client, index, number)
            while True:
                status, code = claim(client, wanted)
                if status == 204:
                    claimed += 1
                elif code == "placement.concurrent_update" or status >= 500:
                    conflicts += 1
                    continue
                else:
                    refused += 1
                break
            latencies.append(1000 * (time.monotonic() - start))
        return Tally(claimed, conflicts, refused, tuple(latencies))

    return work


def until_full(provider: str) -> Worker:
    """A worker that claims one VCPU at a time until placement says that it is full."""

    def work(client: Client, _index: int) -> Tally:
        claimed = conflicts = refused = 0
        latencies = []
        while refused < 3:
            start = time.monotonic()
            status, code = claim(client, {provider: {"VCPU": 1}})
            latencies.append(1000 * (time.monotonic() - start))
            if status == 204:
                claimed += 1
            elif code == "placement.concurrent_update" or status >= 500:
                conflicts += 1
            else:
                refused += 1
        return Tally(claimed, conflicts, refused, tuple(latencies))

    return work


def serial(server: Server, count: int) -> Outcome:
    client = Client(server.url)
    host = make_provider(client, f"serial-{uuid.uuid4()}", {"VCPU": {"total": 100_000}})
    return run_clients(server, "serial", [claiming(count, lambda _c, _i, _n: {host: {"VCPU": 1}})])


def many_hosts(server: Server, hosts: int, clients: int, per_client: int) -> Outcome:
    """Candidates and a claim each, over many hosts."""
    client = Client(server.url)
    for number in range(hosts):
        make_provider(
            client,
            f"host-{number}-{uuid.uuid4()}",
            {"VCPU": {"total": 64}, "MEMORY_MB": {"total": 65536}, "DISK_GB": {"total": 1000}},
        )

    def choose(client: Client, index: int, number: int) -> dict[str, dict[str, int]]:
        answer = client.must(
            "GET", "/allocation_candidates?resources=VCPU:1,MEMORY_MB:512,DISK_GB:5&limit=100"
        )
        requests = answer["allocation_requests"]
        chosen = requests[(index * 37 + number * 13) % len(requests)]
        return {rp: entry["resources"] for rp, entry in chosen["allocations"].items()}

    return run_clients(
        server,
        f"{clients} clients, {hosts} hosts, candidates + claim",
        [claiming(per_client, choose)] * clients,
    )


def shared_storage(server: Server, hosts: int, clients: int, per_client: int) -> Outcome:
    """Every claim also takes DISK_GB from one storage provider."""
    client = Client(server.url)
    pool = make_provider(client, f"pool-{uuid.uuid4()}", {"DISK_GB": {"total": 10_000_000}})
    nodes = [
        make_provider(client, f"node-{n}-{uuid.uuid4()}", {"VCPU": {"total": 1000}})
        for n in range(hosts)
    ]

    def choose(_client: Client, index: int, number: int) -> dict[str, dict[str, int]]:
        node = nodes[(index * 61 + number * 17) % len(nodes)]
        return {node: {"VCPU": 1}, pool: {"DISK_GB": 10}}

    return run_clients(
        server, f"{clients} clients, shared storage", [claiming(per_client, choose)] * clients
    )


def own_disk(server: Server, hosts: int, clients: int, per_client: int) -> Outcome:
    """The same claims with the disk on each host: what the shared row is measured against."""
    client = Client(server.url)
    nodes = [
        make_provider(
            client,
            f"own-{n}-{uuid.uuid4()}",
            {"VCPU": {"total": 1000}, "DISK_GB": {"total": 1_000_000}},
        )
        for n in range(hosts)
    ]

    def choose(_client: Client, index: int, number: int) -> dict[str, dict[str, int]]:
        node = nodes[(index * 61 + number * 17) % len(nodes)]
        return {node: {"VCPU": 1, "DISK_GB": 10}}

    return run_clients(
        server, f"{clients} clients, disk of their own", [claiming(per_client, choose)] * clients
    )


def one_host_until_full(server: Server, capacity: int, clients: int) -> Outcome:
    client = Client(server.url)
    host = make_provider(client, f"full-{uuid.uuid4()}", {"VCPU": {"total": capacity}})
    outcome = run_clients(
        server,
        f"{clients} clients, one host of {capacity} until full",
        [until_full(host)] * clients,
    )
    used = client.must("GET", f"/resource_providers/{host}/usages")["usages"]["VCPU"]
    verdict = "exact" if used == capacity else f"{used - capacity:+d} units"
    return Outcome(**{**outcome.__dict__, "note": f"{used} of {capacity} handed out: {verdict}"})


def reshape(server: Server, consumers: int, children: int, classes: int) -> Outcome:
    """Moves every class of every consumer from a root to its children, in one request."""
    client = Client(server.url)
    names = [f"CUSTOM_RESHAPE_{n}" for n in range(classes)]
    for name in names:
        client.must("PUT", f"/resource_classes/{name}")
    inventory = {name: {"total": consumers * 2} for name in names}
    root = make_provider(client, f"reshape-{uuid.uuid4()}", inventory)
    kids = [
        make_provider(client, f"child-{n}-{uuid.uuid4()}", {}, parent=root) for n in range(children)
    ]
    uuids = [str(uuid.uuid4()) for _ in range(consumers)]
    amounts = dict.fromkeys(names, 1)
    for consumer in uuids:
        client.must(
            "PUT",
            f"/allocations/{consumer}",
            {"allocations": {root: {"resources": amounts}}, "consumer_generation": None, **OWNER},
        )
    generations = {
        rp: client.must("GET", f"/resource_providers/{rp}")["generation"] for rp in (root, *kids)
    }
    body = {
        "inventories": {
            root: {"resource_provider_generation": generations[root], "inventories": {}},
            **{
                kid: {"resource_provider_generation": generations[kid], "inventories": inventory}
                for kid in kids
            },
        },
        "allocations": {
            consumer: {
                "allocations": {kids[n % children]: {"resources": amounts}},
                "consumer_generation": 1,
                **OWNER,
            }
            for n, consumer in enumerate(uuids)
        },
    }
    cpu, start = server.cpu_seconds(), time.monotonic()
    client.must("POST", "/reshaper", body)
    seconds = time.monotonic() - start
    return Outcome(
        f"reshape of {consumers} consumers x {classes} classes over {children} children",
        server.label,
        1,
        0,
        0,
        seconds,
        server.cpu_seconds() - cpu,
        1000 * seconds,
    )


def scenarios(server: Server, quick: bool) -> list[Outcome]:
    """Every scenario against one server; `quick` is for trying the benchmark itself."""
    scale = 10 if quick else 1
    return [
        serial(server, 300 // scale),
        many_hosts(server, 500 // scale, 8, 75 // scale),
        own_disk(server, 50, 8, 75 // scale),
        shared_storage(server, 50, 8, 75 // scale),
        own_disk(server, 50, 16, 40 // scale),
        shared_storage(server, 50, 16, 40 // scale),
        one_host_until_full(server, 1200 // scale, 16),
        reshape(server, 500 // scale, 8, 16),
    ]
