"""The bank: do claims stay exact with many clients, and when everything around them dies?

Three parts. Both servers on PostgreSQL, 16 clients claiming single units of a capacity of 100;
both servers in peace with the bank of ``tests/integration/bank``; and that bank under fire, with
ours, on SQLite, PostgreSQL and MariaDB, for longer than the test does it.
"""

import contextlib
import json
import multiprocessing
import re
import secrets
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from urllib.parse import urlsplit

import sqlalchemy as sa
from rich.console import Console
from rich.table import Table

from benchmarks.claims.clients import OWNER, make_provider
from benchmarks.parts.client import Client
from benchmarks.parts.postgresql import postgresql
from benchmarks.parts.servers import Server, ours, published_server
from tests.integration.bank import bank, private_database
from tests.integration.bank.bank import Report

CAPACITY = 100
CLIENTS = 16
WORKERS = 2
RUSH_WORKERS = 4
_VARYING = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|\d+")


@dataclass(frozen=True)
class Rush:
    """16 clients on one provider until it is full, ``rounds`` times over."""

    server: str
    rounds: int
    acknowledged_counts: list[int]
    allocated_counts: list[int]
    lost_races: int

    @property
    def too_many(self) -> list[int]:
        return [max(0, units - CAPACITY) for units in self.allocated_counts]


def rush(server: Server, database_url: str, rounds: int) -> Rush:
    """Claim until nothing is left, and count in the database what was handed out."""
    client = Client(server.url)
    acknowledged_counts, allocated_counts, lost_count = [], [], 0
    engine = sa.create_engine(database_url)
    for _ in range(rounds):
        provider = make_provider(client, secrets.token_hex(8), {"VCPU": {"total": CAPACITY}})
        granted_count, races = _claim_everything(server.url, provider)
        acknowledged_counts.append(granted_count)
        lost_count += races
        with engine.connect() as connection:
            allocated_counts.append(
                connection.scalar(
                    sa.text(
                        "SELECT coalesce(sum(a.used), 0) FROM allocations a "
                        "JOIN resource_providers p ON p.id = a.resource_provider_id "
                        "WHERE p.uuid = :uuid"
                    ),
                    {"uuid": provider},
                )
            )
    engine.dispose()
    return Rush(server.label, rounds, acknowledged_counts, allocated_counts, lost_count)


def _claim_everything(url: str, provider: str) -> tuple[int, int]:
    context = multiprocessing.get_context("spawn")
    results: Queue[tuple[int, int]] = context.Queue()
    together = context.Barrier(CLIENTS)
    processes = [
        context.Process(target=_claimer, args=(url, provider, together, results))
        for _ in range(CLIENTS)
    ]
    for process in processes:
        process.start()
    tallies = [results.get(timeout=600) for _ in processes]
    for process in processes:
        process.join()
    return sum(granted_count for granted_count, _ in tallies), sum(races for _, races in tallies)


def _claimer(url: str, provider: str, together: Barrier, results: "Queue[tuple[int, int]]") -> None:
    client = Client(url)
    granted_count = races = 0
    together.wait()
    while True:
        body = {
            "allocations": {provider: {"resources": {"VCPU": 1}}},
            "consumer_generation": None,
            **OWNER,
        }
        status, raw = client.send("PUT", f"/allocations/{uuid.uuid4()}", body)
        if status == 204:
            granted_count += 1
            continue
        (error,) = json.loads(raw)["errors"]
        if "exceed the capacity" in error["detail"]:
            break
        races += 1
    results.put((granted_count, races))


@contextlib.contextmanager
def _short_directory() -> Iterator[Path]:
    """One that the user of a database may enter."""
    directory = Path(tempfile.mkdtemp(prefix="bank-", dir="/tmp"))
    directory.chmod(0o755)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _both_in_peace(seed: str, quick: bool) -> tuple[list[Rush], list[tuple[str, Report]]]:
    rushes: list[Rush] = []
    reports: list[tuple[str, Report]] = []
    with _short_directory() as directory, postgresql(directory / "postgresql") as database:
        for start, driver in ((published_server, "psycopg2"), (ours, "psycopg")):
            name = start.__name__
            connection = f"postgresql+{driver}:{database}/{name}"
            plain = f"postgresql+psycopg:{database}/{name}"
            with start(directory / name, connection, RUSH_WORKERS) as server:
                rushes.append(rush(server, plain, 1 if quick else 5))
            with start(directory / name, connection, WORKERS) as server:
                port = urlsplit(server.url).port
                assert port is not None
                report = bank.run_in_peace(
                    directory, port, plain, seed, tellers=8, writes=200 if quick else 1000
                )
                reports.append((server.label, report))
    return rushes, reports


def show(console: Console, seed: str, quick: bool) -> bool:
    """Run everything and print it. False when ours did anything wrong, or nobody did."""
    rushes, reports = _both_in_peace(seed, quick)
    table = Table(
        title=f"{CLIENTS} clients on a capacity of {CAPACITY}: PostgreSQL, {RUSH_WORKERS} workers"
    )
    for heading in ("server", "units handed out, by round", "too many", "lost races told clients"):
        table.add_column(heading)
    for rush in rushes:
        handed_out = ", ".join(map(str, rush.allocated_counts))
        too_many = ", ".join(map(str, rush.too_many))
        table.add_row(rush.server, handed_out, too_many, str(rush.lost_races))
    console.print(table)
    for kind in private_database.MAKERS:
        reason = private_database.missing(kind)
        if reason is not None:
            console.print(f"no bank on {kind}: {reason}")
            continue
        with _short_directory() as directory:
            report = bank.run(
                private_database.MAKERS[kind],
                directory,
                seed,
                tellers=8,
                rounds=1 if quick else 5,
                pace=40,
                threads=4,
            )
        reports.append((f"ours under fire, {kind}", report))
    table = Table(title=f"The bank: {WORKERS} workers, 8 clients, seed {seed}")
    for heading in ("server", "acknowledged", "per s", "faults", "unanswered", "looks", "wrong"):
        table.add_column(heading)
    for label, report in reports:
        unanswered_count = sum(
            n for name, n in report.counts.items() if name.startswith("unanswered")
        )
        table.add_row(
            label,
            str(report.acknowledged),
            f"{report.acknowledged / report.seconds:.1f}",
            str(len(report.faults)),
            str(unanswered_count),
            str(report.looks),
            str(len(report.violations)),
        )
    console.print(table)
    for label, report in reports:
        _print_violations(console, label, report)
    # What finds nothing wrong where there is something proves nothing of ours either.
    can_tell = any(any(rush.too_many) for rush in rushes if rush.server != "ours") or any(
        report.violations for label, report in reports if "ours" not in label
    )
    if not can_tell:
        console.print("Nothing wrong was seen on the published package: ask for more rounds.")
    good = not any(any(rush.too_many) for rush in rushes if rush.server == "ours")
    good &= not any(report.violations for label, report in reports if "ours" in label)
    return good and can_tell


def _print_violations(console: Console, label: str, report: Report) -> None:
    """One line for each kind of violation, with the first of the kind."""
    kinds: dict[str, list[str]] = {}
    for violation in report.violations:
        kinds.setdefault(_VARYING.sub("N", violation[:80]), []).append(violation)
    for violations in kinds.values():
        console.print(f"{label}: {len(violations)} times: {violations[0][:200]}", markup=False)
