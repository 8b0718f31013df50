"""Claims under concurrency: rate, latency, conflicts and CPU.

Compares the published package under uWSGI with placement-server: the same PostgreSQL, number of
workers, and data through the API. A claim is what a scheduler does: ask for candidates among 500
hosts, take one. Client processes share the machine with the servers, so rates are lower bounds;
CPU seconds are the servers' own.
"""

import contextlib
import dataclasses
import json
import re
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from benchmarks.claims.clients import (
    OWNER,
    Outcome,
    Target,
    claiming,
    make_provider,
    run_clients,
)
from benchmarks.floors.table import Row as Summary
from benchmarks.parts.client import Client
from benchmarks.parts.postgresql import postmaster_pid, temporary_postgresql
from benchmarks.parts.servers import create_database_of, ours, published_server

WORKERS = 2
QUERY = "/allocation_candidates?resources=VCPU:1,MEMORY_MB:512,DISK_GB:5&limit=100"
TENFOLD = 10.0
SHARED_AT_LEAST = 0.7
RESHAPE_SECONDS = 0.4
# What a short run asks of each row, by CPU.
QUICK_TIMES = 2
_AT_ONCE = 100
_ALLOCATIONS = re.compile(rb'"allocations":\s*')
_LONGEST = 1024
_DECODER = json.JSONDecoder()

Allocations = dict[str, dict[str, int]]


@dataclass(frozen=True)
class Size:
    """How much each scenario does.

    :ivar runs: of each scenario on ours, which is done with it in seconds, in which the machine may
        be at its best or its worst.
    """

    hosts: int
    claims: int
    reshaped_count: int
    many_reshaped: int
    runs: int


FULL = Size(hosts=500, claims=600, reshaped_count=500, many_reshaped=5000, runs=5)
QUICK = Size(hosts=10, claims=16, reshaped_count=20, many_reshaped=40, runs=3)


def ask_and_claim(
    target: Target,
    name: str,
    clients: int,
    claims: int,
) -> Outcome:
    """Candidates and a claim of one of them, by so many clients at once."""

    def choose(client: Client, index: int, number: int) -> Allocations:
        status, answer = client.send("GET", QUERY)
        if status != 200:
            raise RuntimeError(f"GET {QUERY}: {status} {answer[:500]!r}")
        # Reading all of it would take longer than the claim.
        starts = [match.end() for match in _ALLOCATIONS.finditer(answer)]
        start = starts[(index * 37 + number * 13) % len(starts)]
        chosen_allocations, _ = _DECODER.raw_decode(answer[start : start + _LONGEST].decode())
        return {rp: entry["resources"] for rp, entry in chosen_allocations.items()}

    return run_clients(
        target,
        f"{clients} client{'s' * (clients > 1)}, {name}",
        [claiming(claims // clients, choose)] * clients,
    )


def claim_alone(target: Target, name: str, nodes: list[Allocations], claims: int) -> Outcome:
    """Claims without a search, eight clients at once."""
    return run_clients(
        target,
        f"8 clients, {name}, no search",
        [
            claiming(
                claims // 8,
                lambda _client, index, number: nodes[(index * 61 + number * 17) % len(nodes)],
            )
        ]
        * 8,
    )


def own_disks(client: Client, hosts: int) -> list[Allocations]:
    """Every host has its own disk. Returns a claim on each."""
    stock = {"VCPU": {"total": 6400}, "MEMORY_MB": {"total": 6553600}, "DISK_GB": {"total": 100000}}
    wanted_amounts = {"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 5}
    return [
        {make_provider(client, f"host-{number}", stock): wanted_amounts} for number in range(hosts)
    ]


def shared_storage(client: Client, hosts: int) -> list[Allocations]:
    """Every claim also takes disk from the one provider that all hosts share."""
    aggregate = str(uuid.uuid4())
    pool = make_provider(client, "pool", {"DISK_GB": {"total": 10_000_000}})
    client.must(
        "PUT",
        f"/resource_providers/{pool}/traits",
        {"resource_provider_generation": 1, "traits": ["MISC_SHARES_VIA_AGGREGATE"]},
    )
    stock = {"VCPU": {"total": 6400}, "MEMORY_MB": {"total": 6553600}}
    nodes = [make_provider(client, f"host-{number}", stock) for number in range(hosts)]
    for provider in (pool, *nodes):
        generation = client.must("GET", f"/resource_providers/{provider}")["generation"]
        client.must(
            "PUT",
            f"/resource_providers/{provider}/aggregates",
            {"resource_provider_generation": generation, "aggregates": [aggregate]},
        )
    return [{node: {"VCPU": 1, "MEMORY_MB": 512}, pool: {"DISK_GB": 5}} for node in nodes]


OWN, SHARED = "disks of their own", "shared storage"
WORLDS = {OWN: own_disks, SHARED: shared_storage}


def claims(targets: dict[str, Target], size: Size, runs: int) -> Iterator[Outcome]:
    """Claims in both worlds, by turns: the machine is not equally fast all the time."""
    nodes = {
        name: make(Client(targets[name].server.url), size.hosts) for name, make in WORLDS.items()
    }
    rows: list[tuple[tuple[str, ...], Callable[[Target, str], Outcome]]] = [
        ((OWN,), lambda target, name: ask_and_claim(target, name, 1, size.claims)),
        ((OWN, SHARED), lambda target, name: ask_and_claim(target, name, 8, size.claims)),
        ((OWN, SHARED), lambda target, name: ask_and_claim(target, name, 16, size.claims)),
        ((OWN, SHARED), lambda target, name: claim_alone(target, name, nodes[name], size.claims)),
    ]
    for names, run in rows:
        rounds = [[run(targets[name], name) for name in names] for _ in range(runs)]
        yield from map(_in_the_middle, zip(*rounds, strict=True))


def _in_the_middle(runs: Sequence[Outcome]) -> Outcome:
    """The middle one by rate, with the conflicts of all."""
    middle = sorted(runs, key=lambda run: run.rate)[len(runs) // 2]
    return dataclasses.replace(middle, conflicts=sum(run.conflicts for run in runs))


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
                    "inventories": wanted_inventories,
                }
                for provider, wanted_inventories in inventories.items()
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
    outcomes: dict[str, list[Outcome]] = {}
    with temporary_postgresql("benchmark-") as (cluster, directory):
        pid = postmaster_pid(directory / "postgresql")
        for label, start in (("published", published_server), ("ours", ours)):
            runs = size.runs if label == "ours" else 1
            with contextlib.ExitStack() as servers:
                targets = {}
                for world, make in WORLDS.items():
                    database = f"{label}_{make.__name__}"
                    connection = create_database_of(cluster, label, database)
                    server = start(directory / database, connection, WORKERS, synchronise=False)
                    targets[world] = Target(servers.enter_context(server), pid)
                outcomes[label] = [
                    *claims(targets, size, runs),
                    *reshapes(targets[OWN], size.reshaped_count, 8, 16),
                    *reshapes(targets[OWN], size.many_reshaped, 8, 2),
                ]
    return outcomes


def verdict(theirs: Outcome, mine: Outcome, shared_against: Outcome | None) -> tuple[bool, str]:
    """Whether the row is as it should be, and what it should be."""
    if mine.scenario.startswith("reshape"):
        criteria = ["a tenth of the CPU"]
        holds = theirs.cpu_seconds >= TENFOLD * mine.cpu_seconds
        if "x 16 classes" in mine.scenario:
            criteria.append(f"at most {RESHAPE_SECONDS} s of it")
            holds &= mine.cpu_seconds <= RESHAPE_SECONDS
        return holds, ", ".join(criteria)
    criteria = ["no conflict"]
    holds = mine.conflicts == 0
    if "no search" not in mine.scenario:
        criteria.append(f"{TENFOLD:g}x claims/s and CPU")
        holds &= mine.rate >= TENFOLD * theirs.rate and theirs.cpu_ms >= TENFOLD * mine.cpu_ms
    if shared_against:
        criteria.append(f"{SHARED_AT_LEAST:.0%} of the rate without it")
        holds &= mine.rate >= SHARED_AT_LEAST * shared_against.rate
    return holds, ", ".join(criteria)


def show(console: Console, quick: bool) -> list[Summary]:
    """Measure, print the details, and return what was found."""
    size = QUICK if quick else FULL
    outcomes = measure(size)
    table = Table(
        title=f"Claims: PostgreSQL, {WORKERS} worker processes each; one run of each row on the "
        f"published package, on ours the middle of {size.runs} (one of a reshape)",
    )
    for heading in ("scenario", "", "claims/s", "conflicts", "p95 ms", "CPU ms", "database ms"):
        table.add_column(heading)
    table.add_column("")
    mine_by_name = {mine.scenario: mine for mine in outcomes["ours"]}
    rows = []
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
            )
        own = mine.scenario.replace(SHARED, OWN)
        holds, criteria = verdict(theirs, mine, mine_by_name[own] if own != mine.scenario else None)
        runs = 1 if mine.scenario.startswith("reshape") else size.runs
        rows.append(
            Summary(
                f"claims: {mine.scenario}",
                "CPU ms",
                mine.cpu_ms,
                published_value=theirs.cpu_ms,
                times=QUICK_TIMES if quick else None,
                verdict=None if quick and not mine.conflicts else _word(holds),
                data=f"{size.hosts} hosts",
                runs=f"middle of {runs} of {mine.claims}, 1 published",
            )
        )
        table.add_row(
            "",
            "ratio",
            ratio(mine.rate, theirs.rate),
            "",
            ratio(theirs.p95_ms, mine.p95_ms),
            ratio(theirs.cpu_ms, mine.cpu_ms),
            ratio(theirs.database_ms, mine.database_ms),
            f"{'holds' if holds else '[bold red]FAILS[/]'}: {criteria}",
        )
        table.add_section()
    console.print(table)
    return rows


def _word(holds: bool) -> str:
    return "holds" if holds else "FAILS"


def ratio(larger: float, smaller: float) -> str:
    return f"{larger / smaller:.1f}x" if smaller else "-"
