"""Claims through running schedulers: a call on the bus goes in, a claim comes out.

Schedulers, a RabbitMQ and placement are processes of their own; eight clients claim as fast as they
get answers. This project's placement and the published one are behind the same schedulers by turns,
in rounds. Both are on one MariaDB: on PostgreSQL release 16.0.0 of the published one answered 500
to the one query of the scheduler that was tried, with required=!HW_NUMA_ROOT.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from benchmarks.floors.table import Row
from benchmarks.parts import servers
from benchmarks.parts.servers import Server
from benchmarks.parts.worlds import World
from benchmarks.scheduler.schedulers import (
    CLIENTS,
    MANY_SCHEDULED,
    SCHEDULED,
    Rounds,
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


def rows(*, quick: bool) -> Iterator[Row]:
    """Measure; an error where something that it needs is missing."""
    for missing_reason in (mariadb_missing(), rabbitmq_missing()):
        if missing_reason:
            raise RuntimeError(missing_reason)
    seconds, counts = (2.0, (1, 2)) if quick else (5.0, (1, 2, 4))
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="scheduling-")))
        directory.chmod(0o755)
        database = start_mariadb(directory / "mariadb")
        stack.callback(end, database)
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


def _rows(hosts: int, count: int, ours: Rounds, theirs: Rounds) -> Iterator[Row]:
    data = f"{hosts:,} hosts, {count} scheduler{'s' if count > 1 else ''}, {CLIENTS} clients"
    failed = f"FAILS: {ours.failed_count} claims failed" if ours.failed_count else None
    runs = f"{ours.claims} claims, {theirs.claims} published"
    scheduler, server = ours.per_claim("scheduler_cpu_ms"), ours.per_claim("server_cpu_ms")
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
        1000 / ours.rate,
        published_value=1000 / theirs.rate,
        verdict=failed,
        data=data,
        runs=f"p50 {ours.percentile(50):.0f}, p95 {ours.percentile(95):.0f} ms, "
        f"{ours.per_claim('retries'):.3f} retries",
    )


def _measure(
    placements: Sequence[Server],
    brokers: dict[str, RabbitMq],
    directory: Path,
    count: int,
    roots: Sequence[str],
    seconds: float,
) -> dict[str, Rounds]:
    with ExitStack() as stack:
        started_schedulers = [
            stack.enter_context(
                Schedulers(
                    placement,
                    brokers[placement.label],
                    directory / f"{placement.label}-{len(roots)}-{count}",
                    count,
                ).start(roots)
            )
            for placement in placements
        ]
        rounds = [
            [process.measure(seconds) for process in started_schedulers] for _ in range(ROUNDS)
        ]
    return {
        placement.label: Rounds(tuple(several))
        for placement, several in zip(placements, zip(*rounds, strict=True), strict=True)
    }


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
