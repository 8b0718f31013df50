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

from rich.console import Console
from rich.table import Table

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


def show(console: Console, quick: bool) -> bool:
    """Measure and print; False where something that it needs is missing."""
    for missing_reason in (mariadb_missing(), rabbitmq_missing()):
        if missing_reason:
            console.print(f"scheduling: {missing_reason}")
            return False
    seconds, counts = (2.0, (1, 2)) if quick else (5.0, (1, 2, 4))
    table = Table(
        title=f"Claims of {CLIENTS} clients on the bus, {ROUNDS} rounds of {seconds:.0f} s each by "
        f"turns; placement of {WORKERS} workers on MariaDB"
    )
    for heading in ("hosts", "schedulers", "placement", "claims/s", "p50 ms", "p95 ms"):
        table.add_column(heading, justify="left" if heading == "placement" else "right")
    for heading in ("retries per claim", "server CPU ms", "scheduler CPU ms", "claims", "failed"):
        table.add_column(heading, justify="right")
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="scheduling-")))
        directory.chmod(0o755)
        database = start_mariadb(directory / "mariadb")
        stack.callback(end, database)
        brokers = {kind: stack.enter_context(_broker(directory, kind)) for kind in KINDS}
        try:
            for world in WORLDS:
                _rows(table, world, quick, directory, database, brokers, counts, seconds)
        finally:
            # also what was measured before it was interrupted
            console.print(table)
    return True


def _rows(
    table: Table,
    world: World,
    quick: bool,
    directory: Path,
    database: Database,
    brokers: dict[str, RabbitMq],
    counts: Sequence[int],
    seconds: float,
) -> None:
    hosts = world.quick if quick else world.hosts
    roots = [root_of(number) for number in range(hosts)]
    with ExitStack() as stack:
        placements = [
            stack.enter_context(
                _placement(kind, directory / f"{kind}-{hosts}", database, world, quick)
            )
            for kind in KINDS
        ]
        for count in counts:
            rounds_by_kind = _measure(placements, brokers, directory, count, roots, seconds)
            for kind, rounds in rounds_by_kind.items():
                table.add_row(
                    f"{hosts:,}",
                    str(count),
                    kind,
                    f"{rounds.rate:.1f}",
                    f"{rounds.percentile(50):.0f}",
                    f"{rounds.percentile(95):.0f}",
                    f"{rounds.per_claim('retries'):.3f}",
                    f"{rounds.per_claim('server_cpu_ms'):.1f}",
                    f"{rounds.per_claim('scheduler_cpu_ms'):.1f}",
                    str(rounds.claims),
                    str(rounds.failed_count),
                    end_section=kind == KINDS[-1],
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
