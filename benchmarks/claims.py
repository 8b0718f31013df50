"""Claims under concurrency: rate, latency, conflicts, CPU, and whether the books stay exact.

Compares the published package under uWSGI with placement-server: the same PostgreSQL, number of
workers, and data through the API. A claim is what a scheduler does: ask for candidates among 500
hosts, take one. Client processes share the machine with the servers, so rates are lower bounds;
CPU seconds are the servers' own.
"""

import contextlib
import dataclasses
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.claiming import (
    OWNER,
    Outcome,
    Target,
    Worker,
    claiming,
    make_provider,
    run_clients,
    until_full,
)
from benchmarks.client import Client
from benchmarks.servers import create_database, ours, postgresql, published

WORKERS = 2
QUERY = "/allocation_candidates?resources=VCPU:1,MEMORY_MB:512,DISK_GB:5&limit=100"
TENFOLD = 10.0
SHARED_AT_LEAST = 0.7
RESHAPE_SECONDS = 0.4
_AT_ONCE = 100
# Ours is done with a row in seconds, in which the machine may be at its best or its worst.
RUNS = 5


@dataclass(frozen=True)
class Size:
    """How much each scenario does."""

    hosts: int
    claims: int
    capacity: int
    reshaped: int
    many_reshaped: int


FULL = Size(hosts=500, claims=600, capacity=1200, reshaped=500, many_reshaped=5000)
QUICK = Size(hosts=50, claims=64, capacity=120, reshaped=50, many_reshaped=200)


def ask_and_claim(target: Target, name: str, clients: int, claims: int) -> Outcome:
    """Candidates and a claim of one of them, by so many clients at once."""

    def choose(client: Client, index: int, number: int) -> dict[str, dict[str, int]]:
        requests = client.must("GET", QUERY)["allocation_requests"]
        chosen = requests[(index * 37 + number * 13) % len(requests)]
        return {rp: entry["resources"] for rp, entry in chosen["allocations"].items()}

    return _in_the_middle(
        target,
        f"{clients} client{'s' * (clients > 1)}, {name}",
        [claiming(claims // clients, choose)] * clients,
    )


def claim_alone(target: Target, name: str, nodes: list[dict[str, dict[str, int]]]) -> Outcome:
    """Claims without a search, eight clients at once."""
    return _in_the_middle(
        target,
        f"8 clients, {name}, no search",
        [claiming(75, lambda _c, index, number: nodes[(index * 61 + number * 17) % len(nodes)])]
        * 8,
    )


def _in_the_middle(target: Target, scenario: str, workers: list[Worker]) -> Outcome:
    """The middle one by rate of as many runs as the server is given."""
    times = RUNS if target.server.label == "ours" else 1
    runs = sorted(
        (run_clients(target, scenario, workers) for _ in range(times)), key=lambda run: run.rate
    )
    conflicts = sum(run.conflicts for run in runs)
    return dataclasses.replace(runs[times // 2], conflicts=conflicts)


def own_disks(target: Target, size: Size) -> Iterator[Outcome]:
    """Every host has its own disk."""
    client = Client(target.server.url)
    hosts = [
        make_provider(
            client,
            f"host-{number}",
            {"VCPU": {"total": 640}, "MEMORY_MB": {"total": 655360}, "DISK_GB": {"total": 10000}},
        )
        for number in range(size.hosts)
    ]
    for clients in (1, 8, 16):
        yield ask_and_claim(target, "disks of their own", clients, size.claims)
    wanted = {"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 5}
    yield claim_alone(target, "disks of their own", [{host: wanted} for host in hosts])
    host = make_provider(client, "full", {"VCPU": {"total": size.capacity}})
    outcome = run_clients(
        target, f"16 clients, one host of {size.capacity} until full", [until_full(host)] * 16
    )
    used = client.must("GET", f"/resource_providers/{host}/usages")["usages"]["VCPU"]
    verdict = "exact" if used == size.capacity else f"{used - size.capacity:+d} units"
    yield dataclasses.replace(outcome, note=f"{used} of {size.capacity} handed out: {verdict}")
    yield from reshapes(target, size.reshaped, 8, 16)
    yield from reshapes(target, size.many_reshaped, 8, 2)


def shared_storage(target: Target, size: Size) -> Iterator[Outcome]:
    """Every claim also takes disk from the one provider that all hosts share."""
    client = Client(target.server.url)
    aggregate = str(uuid.uuid4())
    pool = make_provider(client, "pool", {"DISK_GB": {"total": 10_000_000}})
    client.must(
        "PUT",
        f"/resource_providers/{pool}/traits",
        {"resource_provider_generation": 1, "traits": ["MISC_SHARES_VIA_AGGREGATE"]},
    )
    hosts = [
        make_provider(
            client, f"host-{number}", {"VCPU": {"total": 640}, "MEMORY_MB": {"total": 655360}}
        )
        for number in range(size.hosts)
    ]
    for provider in (pool, *hosts):
        generation = client.must("GET", f"/resource_providers/{provider}")["generation"]
        client.must(
            "PUT",
            f"/resource_providers/{provider}/aggregates",
            {"resource_provider_generation": generation, "aggregates": [aggregate]},
        )
    for clients in (8, 16):
        yield ask_and_claim(target, "shared storage", clients, size.claims)
    yield claim_alone(
        target,
        "shared storage",
        [{host: {"VCPU": 1, "MEMORY_MB": 512}, pool: {"DISK_GB": 5}} for host in hosts],
    )


def reshapes(target: Target, consumers: int, children: int, classes: int) -> Iterator[Outcome]:
    """Moves every class of every consumer from a root to its children and back, in one request
    each."""
    client = Client(target.server.url)
    names = [f"CUSTOM_RESHAPE_{n}" for n in range(classes)]
    for name in names:
        client.must("PUT", f"/resource_classes/{name}")
    inventory = {name: {"total": consumers * 2} for name in names}
    root = make_provider(client, f"reshape-{consumers}", inventory)
    kids = [
        make_provider(client, f"child-{consumers}-{n}", {}, parent=root) for n in range(children)
    ]
    amounts = dict.fromkeys(names, 1)
    everyone = [str(uuid.uuid4()) for _ in range(consumers)]
    for start in range(0, consumers, _AT_ONCE):
        client.must(
            "POST",
            "/allocations",
            {
                consumer: {
                    "allocations": {root: {"resources": amounts}},
                    "consumer_generation": None,
                    **OWNER,
                }
                for consumer in everyone[start : start + _AT_ONCE]
            },
        )
    moves = (
        ("over", {root: {}, **dict.fromkeys(kids, inventory)}, kids),
        ("back from", {root: inventory, **{kid: {} for kid in kids}}, [root]),
    )
    for generation, (way, inventories, to) in enumerate(moves, start=1):
        body = {
            "inventories": {
                provider: {
                    "resource_provider_generation": client.must(
                        "GET", f"/resource_providers/{provider}"
                    )["generation"],
                    "inventories": wanted,
                }
                for provider, wanted in inventories.items()
            },
            "allocations": {
                consumer: {
                    "allocations": {to[n % len(to)]: {"resources": amounts}},
                    "consumer_generation": generation,
                    **OWNER,
                }
                for n, consumer in enumerate(everyone)
            },
        }
        before, start_time = target.cpu_seconds(), time.monotonic()
        client.must("POST", "/reshaper", body)
        seconds = time.monotonic() - start_time
        after = target.cpu_seconds()
        yield Outcome(
            f"reshape of {consumers} consumers x {classes} classes {way} {children} children",
            target.server.label,
            1,
            0,
            0,
            seconds,
            after[0] - before[0],
            after[1] - before[1],
            1000 * seconds,
        )


def measure(size: Size) -> dict[str, list[Outcome]]:
    """All scenarios on each server in turn, on databases of one PostgreSQL; outcomes by label."""
    outcomes: dict[str, list[Outcome]] = {"published": [], "ours": []}
    drivers = {"published": (published, "psycopg2"), "ours": (ours, "psycopg")}
    with tempfile.TemporaryDirectory(prefix="benchmark-") as name, contextlib.ExitStack() as stack:
        directory = Path(name)
        directory.chmod(0o755)
        cluster = stack.enter_context(postgresql(directory / "postgresql"))
        pid = int((directory / "postgresql" / "data" / "postmaster.pid").read_text().split()[0])
        for label, (start, driver) in drivers.items():
            for scenarios in (own_disks, shared_storage):
                database = f"{label}_{scenarios.__name__}"
                create_database(cluster, database)
                connection = f"postgresql+{driver}:{cluster}/{database}"
                with start(directory / database, connection, WORKERS) as server:
                    outcomes[label] += scenarios(Target(server, pid), size)
    return outcomes


def verdict(theirs: Outcome, mine: Outcome, shared_against: Outcome | None) -> tuple[bool, str]:
    """Whether the row is as it should be, and what it should be."""
    if mine.scenario.startswith("reshape"):
        held = mine.cpu_seconds <= max(RESHAPE_SECONDS, theirs.cpu_seconds / TENFOLD)
        return held, f"a tenth of the CPU, or {RESHAPE_SECONDS} s"
    wanted = ["no conflict"]
    held = mine.conflicts == 0
    if "no search" not in mine.scenario:
        wanted.append(f"{TENFOLD:g}x claims/s and CPU")
        held &= mine.rate >= TENFOLD * theirs.rate and theirs.cpu_ms >= TENFOLD * mine.cpu_ms
    if shared_against:
        wanted.append(f"{SHARED_AT_LEAST:.0%} of the rate without it")
        held &= mine.rate >= SHARED_AT_LEAST * shared_against.rate
    if "until full" in mine.scenario:
        wanted.append("exact")
        held &= mine.note.endswith("exact")
    return held, ", ".join(wanted)


def show(console: Console, quick: bool) -> bool:
    """Measure and print; whether all rows are as they should be."""
    outcomes = measure(QUICK if quick else FULL)
    table = Table(
        title=f"Claims: PostgreSQL, {WORKERS} worker processes each; one run of each row on the "
        f"published package, on ours the middle of {RUNS} (one until full, one of a reshape)",
    )
    for heading in ("scenario", "", "claims/s", "conflicts", "p95 ms", "CPU ms", "database ms"):
        table.add_column(heading)
    table.add_column("note")
    mine_by_name = {mine.scenario: mine for mine in outcomes["ours"]}
    all_held = True
    for theirs, mine in zip(outcomes["published"], outcomes["ours"], strict=True):
        for row in (theirs, mine):
            table.add_row(
                row.scenario,
                row.server,
                f"{row.rate:.1f}",
                str(row.conflicts),
                f"{row.p95_ms:.1f}",
                f"{row.cpu_ms:.2f}",
                f"{row.database_ms:.2f}",
                row.note,
            )
        own = mine.scenario.replace("shared storage", "disks of their own")
        held, wanted = verdict(theirs, mine, mine_by_name[own] if own != mine.scenario else None)
        all_held &= held
        table.add_row(
            "",
            "ratio",
            ratio(mine.rate, theirs.rate),
            "",
            ratio(theirs.p95_ms, mine.p95_ms),
            ratio(theirs.cpu_ms, mine.cpu_ms),
            ratio(theirs.database_ms, mine.database_ms),
            f"{'holds' if held else '[bold red]FAILS[/]'}: {wanted}",
        )
        table.add_section()
    console.print(table)
    return all_held


def ratio(larger: float, smaller: float) -> str:
    return f"{larger / smaller:.1f}x" if smaller else "-"
