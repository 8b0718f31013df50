"""Rates of claims beside pgbench, which executes exactly our statements.

Both sides have PostgreSQL to themselves while they run, by turns, and as many clients. A claim is
one transaction of pgbench, which has no server in between, and whose client costs next to nothing:
on a machine with few cores its rate is what the database alone can do.
"""

import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import orjson
import psutil

from benchmarks.claims.clients import Outcome, Target, claiming, run_clients
from benchmarks.floors.recording import (
    AMOUNTS,
    HOSTS,
    QUERY,
    Statements,
    make_hosts,
    recorded_claims,
)
from benchmarks.floors.table import Row
from benchmarks.parts.client import Client
from benchmarks.parts.postgresql import postmaster_pid, temporary_postgresql
from benchmarks.parts.servers import cpu_seconds, ours
from benchmarks.reads.floor_server import CONSUMER

_CLIENTS: Final = 8
_WORKERS: Final = 2
_SETTLED: Final = "RETURNING id"
"""Only the last statement of a claim has it, which returns the id of the change record first."""

_CHANGE: Final = "max"
_NEWS: Final = "WITH news AS"
"""The statement of a search begins with the newest change that is known."""

_RATE: Final = re.compile(r"^tps = ([0-9.]+)", re.MULTILINE)


@dataclass(frozen=True)
class _MeasuredClaims:
    """Claims of one side.

    :ivar cpu_ms: of server and database, for each claim.
    """

    rate: float
    cpu_ms: float


def rows(*, quick: bool) -> Iterator[Row]:
    """Measure claims after a search among hosts, and claims on one host."""
    claims, rounds = (80, 3) if quick else (2000, 5)
    with temporary_postgresql("pgbench-") as (cluster, directory):
        pid = postmaster_pid(directory / "postgresql")
        connection = f"postgresql+psycopg:{cluster}/ours"
        with ours(directory / "ours", connection, _WORKERS) as server:
            target = Target(server, pid)
            hosts, host = make_hosts(Client(server.url))
            for title, claim_statements, choose in (
                (
                    "claim: GET limit=5 and PUT",
                    recorded_claims(connection, hosts, AMOUNTS, QUERY),
                    _found_amounts,
                ),
                (
                    "claim on one host",
                    recorded_claims(connection, [host], {"VCPU": 1}),
                    lambda _client, _index, _number: {host: {"VCPU": 1}},
                ),
            ):
                yield from _beside(
                    title, target, f"{cluster}/ours", claim_statements, choose, claims, rounds
                )


def _beside(
    title: str,
    target: Target,
    database: str,
    claim_statements: Sequence[Statements],
    choose: Callable[[Client, int, int], dict[str, dict[str, int]]],
    claims: int,
    rounds: int,
) -> Iterator[Row]:
    """The best of several rounds of each side: other work only ever slows them down."""
    mine: list[_MeasuredClaims] = []
    floor: list[_MeasuredClaims] = []
    claims_per_client = claims // _CLIENTS
    for _ in range(rounds):
        outcome = run_clients(target, title, [claiming(claims_per_client, choose)] * _CLIENTS)
        mine.append(_of_outcome(outcome))
        floor.append(_pgbench(database, target.database_pid, claim_statements, claims_per_client))
    rate, least = max(side.rate for side in mine), max(side.rate for side in floor)
    data = f"{HOSTS} hosts, pgbench"
    runs = f"best of {rounds} of {claims_per_client * _CLIENTS}"
    yield Row(
        f"{title}, {_CLIENTS} clients", "claims/s", rate, least, least=0.6, data=data, runs=runs
    )
    cpu, least = min(side.cpu_ms for side in mine), min(side.cpu_ms for side in floor)
    yield Row(f"{title}: server and database", "CPU ms", cpu, least, data=data, runs=runs)


def _of_outcome(outcome: Outcome) -> _MeasuredClaims:
    assert outcome.conflicts == outcome.refused_count == 0, f"there is room for all: {outcome}"
    return _MeasuredClaims(outcome.rate, outcome.cpu_ms + outcome.database_ms)


def _found_amounts(client: Client, index: int, number: int) -> dict[str, dict[str, int]]:
    """Search, and take one of the hosts found."""
    candidates = orjson.loads(client.send("GET", QUERY)[1])["allocation_requests"]
    chosen_allocations = candidates[(index + number) % len(candidates)]["allocations"]
    return {provider: entry["resources"] for provider, entry in chosen_allocations.items()}


def _pgbench(
    database: str, pid: int, claim_statements: Sequence[Statements], claims_per_client: int
) -> _MeasuredClaims:
    """Run as many claims with pgbench, each one of those recorded, for a new consumer."""
    where = urlsplit(f"postgresql:{database}")
    with tempfile.TemporaryDirectory(prefix="scripts-") as name:
        scripts = []
        for number, statements in enumerate(claim_statements):
            path = Path(name) / f"{number}.sql"
            path.write_text(_script(statements))
            scripts.append(f"--file={path}")
        command = ["pgbench", "--no-vacuum", "--protocol=prepared", f"--client={_CLIENTS}"]
        command += [
            f"--transactions={claims_per_client}",
            f"--define={_CHANGE}=9000000000000000000",
            *scripts,
        ]
        command += ["-h", str(where.hostname), "-p", str(where.port), "-U", "root"]
        before = _spent_seconds(pid)
        result = subprocess.run(
            [*command, where.path.strip("/")], check=True, capture_output=True, text=True
        )
        cpu = _spent_seconds(pid) - before
    rate = _RATE.search(result.stdout)
    assert rate is not None, result.stdout
    return _MeasuredClaims(float(rate[1]), 1000 * cpu / (claims_per_client * _CLIENTS))


def _spent_seconds(pid: int) -> float:
    """CPU seconds of a database, with those of sessions that have ended."""
    times = psutil.Process(pid).cpu_times()
    return cpu_seconds(pid) + times.children_user + times.children_system


def _script(statements: Statements) -> str:
    """One transaction; the search knows all changes up to the client's own last claim."""
    lines = [r"\set consumer random(1, 9000000000000000000)", "BEGIN;"]
    for text, parameters in statements:
        known_id = parameters[0] if text.startswith(_NEWS) else None
        if isinstance(parameters, dict):
            literals: Any = {name: _literal(value, known_id) for name, value in parameters.items()}
        else:
            literals = tuple(_literal(value, known_id) for value in parameters)
        end = " \\gset" if _SETTLED in text else ";"
        lines.append(text % literals + end)
    return "\n".join([*lines, "COMMIT;"]) + "\n"


def _literal(value: Any, known_id: int | None) -> str:
    """A value of a statement, or the variable in its place.

    :param known_id: the newest change that a search knows.
    """
    if value == CONSUMER:
        return ":consumer"
    if known_id is not None and value == known_id:
        return f":{_CHANGE}"
    if value is None:
        return "NULL"
    if isinstance(value, list | tuple):
        return "'{" + ",".join(str(item) for item in value) + "}'"
    return str(value) if isinstance(value, int) else f"'{value}'"
