"""Claims through running schedulers: a call on the bus goes in, a claim comes out.

Schedulers, a RabbitMQ and placement are processes of their own; eight clients claim as fast as they
get answers. This project's placement and the published one are behind the same schedulers by turns,
in rounds. Both are on one MariaDB: on PostgreSQL release 16.0.0 of the published one answered 500
to the one query of the scheduler that was tried, with required=!HW_NUMA_ROOT.
"""

from __future__ import annotations

import contextlib
import math
import statistics
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from benchmarks.floors.table import Row
from benchmarks.parts import servers
from benchmarks.parts.client import Client
from benchmarks.parts.drawing import drawing
from benchmarks.parts.servers import Server
from benchmarks.parts.worlds import World
from benchmarks.scheduler.schedulers import (
    CLIENTS,
    MANY_SCHEDULED,
    SCHEDULED,
    Round,
    Schedulers,
    root_of,
)
from tests.fixtures.databases import Server as Database
from tests.fixtures.databases import end, fresh_database, mariadb_missing, start_mariadb
from tests.fixtures.rabbitmq import RabbitMq, rabbitmq_missing

WORKERS: Final = 2
ROUNDS: Final = 3
KINDS: Final = ("ours", "published")
WORLDS: Final = (SCHEDULED, MANY_SCHEDULED)
MOST_GROWTH: Final = 1.1
"""The exponent that nothing may exceed."""
AXES: Final = {
    "hosts": [(number, 0, 1) for number in (125, 250, 500, 1000, 2000, 4000)],
    "consumers": [(250, number, 1) for number in (500, 2000, 8000, 32000)],
    "schedulers": [(500, 0, number) for number in (1, 2, 4, 8)],
}
"""Hosts, consumers and schedulers of each measurement, of which one number grows."""
PARTS: Final = {"scheduler_cpu_ms": "schedulers", "server_cpu_ms": "placement"}


def rows(*, quick: bool) -> Iterator[Row]:
    """Measure; an error where something that it needs is missing."""
    seconds, counts = (2.0, (1, 2)) if quick else (5.0, (1, 2, 4))
    with _home() as (directory, database), ExitStack() as stack:
        brokers = {kind: stack.enter_context(_broker(directory, kind)) for kind in KINDS}
        for world in WORLDS:
            hosts = world.quick if quick else world.hosts
            roots = [root_of(number) for number in range(hosts)]
            with ExitStack() as servers_of_world:
                placements = [
                    servers_of_world.enter_context(
                        _placement(kind, directory / f"{kind}-{hosts}", database, world, quick)
                    )
                    for kind in KINDS
                ]
                for count in counts:
                    rounds = _measure(placements, brokers, directory, count, roots, seconds)
                    yield from _rows(hosts, count, *(rounds[kind] for kind in KINDS))


def _rows(hosts: int, count: int, ours: Round, theirs: Round) -> Iterator[Row]:
    data = f"{hosts:,} hosts, {count} scheduler{'s' if count > 1 else ''}, {CLIENTS} clients"
    failed = f"FAILS: {ours.failed_count} claims failed" if ours.failed_count else None
    runs = f"{ours.claims} claims, {theirs.claims} published"
    scheduler, server = ours.per_claim("scheduler_cpu_ms"), ours.per_claim("server_cpu_ms")
    parts = statistics.quantiles(ours.milliseconds, n=20)
    most = 5.0 if hosts <= 500 else 8.0
    yield Row("claim on the bus: scheduler", "CPU ms", scheduler, most=most, data=data, runs=runs)
    yield Row(
        "claim on the bus: placement",
        "CPU ms",
        server,
        published_value=theirs.per_claim("server_cpu_ms"),
        data=data,
        runs=runs,
    )
    yield Row(
        "claim on the bus: time for each",
        "ms",
        1000 * ours.per_claim("seconds"),
        published_value=1000 * theirs.per_claim("seconds"),
        verdict=failed,
        data=data,
        runs=f"p50 {parts[9]:.0f}, p95 {parts[18]:.0f} ms",
    )


def _measure(
    placements: Sequence[Server],
    brokers: dict[str, RabbitMq],
    directory: Path,
    count: int,
    roots: Sequence[str],
    seconds: float,
) -> dict[str, Round]:
    with ExitStack() as stack:
        running = {}
        for placement in placements:
            label = placement.label
            place = directory / f"{label}-{len(roots)}-{count}"
            schedulers = Schedulers(placement, brokers[label], place, count)
            running[label] = stack.enter_context(schedulers.start(roots))
        rounds = [[some.measure(seconds) for some in running.values()] for _ in range(ROUNDS)]
    return dict(zip(running, map(Round.of, zip(*rounds, strict=True)), strict=True))


@contextlib.contextmanager
def _home() -> Iterator[tuple[Path, Database]]:
    """Make a directory, and run a database in it."""
    for missing_reason in filter(None, (mariadb_missing(), rabbitmq_missing())):
        raise RuntimeError(missing_reason)
    with tempfile.TemporaryDirectory(prefix="scheduling-") as directory:
        Path(directory).chmod(0o755)
        database = start_mariadb(Path(directory) / "mariadb")
        try:
            yield Path(directory), database
        finally:
            end(database)


@contextlib.contextmanager
def _placement(
    kind: str, directory: Path, database: Database, world: World, quick: bool
) -> Iterator[Server]:
    """Run a placement that has the hosts.

    This project's server loads them for both: it does so in a tenth of the time, and a database
    can be taken back to the published schema.
    """
    with fresh_database(database, migrated=False) as url:
        with servers.ours(directory, url, WORKERS) as server:
            world.load(server, quick)
            if kind == "ours":
                yield server
                return
        manage = Path(sys.executable).parent / "placement-manage"
        config = directory / "placement.conf"
        subprocess.run(
            [str(manage), "--config-file", str(config), "db", "downgrade"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        with servers.published_server(directory, url, WORKERS, synchronise=False) as server:
            yield server


@contextlib.contextmanager
def _broker(directory: Path, kind: str) -> Iterator[RabbitMq]:
    """Run a broker of one placement's schedulers, so that the others do not hear of its calls."""
    home = directory / f"broker-{kind}"
    home.mkdir()
    broker = RabbitMq(home)
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


def growth(*, quick: bool, plots: Path | None) -> Iterator[Row]:
    """Measure claims by hosts, by consumers and by schedulers, the least of some rounds each.

    :param plots: the folder that a plot of each axis is written to.
    """
    with _home() as (home, database), _broker(home, "ours") as broker:
        for axis, (name, points) in enumerate(AXES.items()):
            costs = []
            for hosts, consumers, count in points[: 2 if quick else None]:
                place = home / f"{name}-{hosts}-{consumers}-{count}"
                world = World("flat", hosts, hosts, SCHEDULED.make)
                with _placement("ours", place, database, world, quick) as server:
                    _hold(Client(server.url), hosts, consumers)
                    schedulers = Schedulers(server, broker, place, count)
                    with schedulers.start([root_of(number) for number in range(hosts)]):
                        rounds = [schedulers.measure(2.0 if quick else 5.0) for _ in range(ROUNDS)]
                costs.append([min(r.per_claim(part) for r in rounds) for part in PARTS])
            numbers = [point[axis] for point in points[: len(costs)]]
            lines = {}
            for part, line in zip(PARTS, zip(*costs, strict=True), strict=True):
                logs = [[math.log10(n) for n in values] for values in (numbers, line)]
                exponent = statistics.linear_regression(*logs).slope
                data = ", ".join(f"{n:,}: {ms:.2g} ms" for n, ms in zip(numbers, line, strict=True))
                row = f"claim by {name}: {PARTS[part]}"
                yield Row(row, "exponent", exponent, most=MOST_GROWTH, data=data)
                # both scales are logarithmic: to a hundred times, from 0.5 to 50 ms
                places = [(x - logs[0][0]) / 2 for x in logs[0]], [(y + 0.3) / 2 for y in logs[1]]
                lines[f"{PARTS[part]}: {exponent:.2f}"] = list(zip(*places, strict=True))
            if plots is not None:
                plots.mkdir(parents=True, exist_ok=True)
                caption = f"CPU of a claim by {name}, {numbers[0]:,} to {numbers[-1]:,}; exponents"
                (plots / f"growth-claim-{name}.svg").write_text(drawing(lines, caption))


def _hold(client: Client, hosts: int, consumers: int) -> None:
    """Let consumers hold something of the hosts by turns."""
    resources = {"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 1}
    owner = {"project_id": "p", "user_id": "u", "consumer_type": "INSTANCE"}
    for start in range(0, consumers, 200):
        places = [root_of(number % hosts) for number in range(start, start + 200)]
        held = [{"allocations": {place: {"resources": resources}}} for place in places]
        bodies = [{**body, **owner, "consumer_generation": None} for body in held]
        client.must("POST", "/allocations", {str(uuid.uuid4()): body for body in bodies})
