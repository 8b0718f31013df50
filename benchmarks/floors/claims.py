"""Claims and reshapes beside the same statements by the driver alone.

The statements of a claim are recorded from a server in this process. The floor's server executes
them again for new consumers, in one transaction each, and answers GET with the bytes of ours and
one SELECT; so both sides have the same HTTP server, driver and pool.
"""

import contextlib
import pickle
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import orjson
import psycopg

from benchmarks.claims.clients import OWNER, Target, claim
from benchmarks.claims.rates import reshapes
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
from benchmarks.parts.postgresql import temporary_postgresql
from benchmarks.parts.servers import Server, ours
from benchmarks.reads.floor_server import CLAIMS, SEARCH
from benchmarks.reads.floors import floor_server

_ROUNDS: Final = 10


def rows(*, quick: bool) -> Iterator[Row]:
    """Measure both servers by turns, and reshapes."""
    with temporary_postgresql("claims-") as (cluster, directory):
        connection = f"postgresql+psycopg:{cluster}/ours"
        with ours(directory / "ours", connection, 1) as server:
            yield from _claims(server, connection, directory, 20 if quick else 200)
            for consumers in (500, 50):
                yield from _reshape(server, f"postgresql:{cluster}/ours", consumers)


def _claims(server: Server, connection: str, directory: Path, times: int) -> Iterator[Row]:
    client = Client(server.url)
    hosts, one_host = make_hosts(client)
    _, search_answer = client.send("GET", QUERY)
    with (
        _floor(
            connection,
            directory / "many",
            recorded_claims(connection, hosts, AMOUNTS),
            search_answer,
        ) as many,
        _floor(
            connection,
            directory / "one",
            recorded_claims(connection, [one_host], {"VCPU": 1}),
            b"",
        ) as single,
    ):
        floor_of_many, floor_of_one = Client(many.url), Client(single.url)

        def search_and_claim(number: int) -> None:
            client.send("GET", QUERY)
            claim(client, {hosts[number % HOSTS]: AMOUNTS})

        def floor_search_and_claim(number: int) -> None:
            floor_of_many.send("GET", SEARCH)
            claim(floor_of_many, {hosts[number % HOSTS]: AMOUNTS})

        mine, floor = _by_turns(times, (server, search_and_claim), (many, floor_search_and_claim))
        data, runs = f"{HOSTS} hosts", f"best of {_ROUNDS} of {times}"
        yield Row("claim: GET limit=5 and PUT", "CPU ms", mine, floor, 2.0, data=data, runs=runs)
        mine, floor = _by_turns(
            times,
            (server, lambda _number: claim(client, {one_host: {"VCPU": 1}})),
            (single, lambda _number: claim(floor_of_one, {one_host: {"VCPU": 1}})),
        )
        yield Row(
            "claim on one host, PUT alone", "CPU ms", mine, floor, 2.0, data="1 host", runs=runs
        )
    path = f"/resource_providers/{one_host}/usages"
    # one more when it was recorded, and one at the beginning of each round
    claimed_units = client.must("GET", path)["usages"]["VCPU"]
    assert claimed_units == 2 + 2 * _ROUNDS * (times + 1), (
        f"the floor claims as well: {claimed_units}"
    )


def _by_turns(times: int, *sides: tuple[Server, Callable[[int], object]]) -> tuple[float, ...]:
    """CPU ms of each side, the least of several rounds: other work only ever adds to them."""
    costs: list[list[float]] = [[] for _ in sides]
    for _ in range(_ROUNDS):
        for (server, action), cost in zip(sides, costs, strict=True):
            with server.on_one_cpu():
                action(0)
                before = server.cpu_seconds()
                for number in range(times):
                    action(number)
                cost.append(1000 * (server.cpu_seconds() - before) / times)
    return tuple(min(cost) for cost in costs)


@contextlib.contextmanager
def _floor(
    connection: str, directory: Path, claims: list[Statements], search_answer: bytes
) -> Iterator[Server]:
    directory.mkdir()
    (directory / CLAIMS).write_bytes(pickle.dumps(claims))
    (directory / SEARCH.strip("/")).write_bytes(search_answer)
    with floor_server(connection, directory, directory.with_suffix(".log")) as server:
        yield server


def _reshape(server: Server, url: str, consumers: int) -> Iterator[Row]:
    """Move all consumers there and back; the floor writes as many rows, and parses the body."""
    # nobody asks for the CPU of the database
    target = Target(server, server.pid)
    mine = min(1000 * outcome.cpu_seconds for outcome in reshapes(target, consumers, 8, 16))
    floor = min(_writing_ms(url, consumers) for _ in range(_ROUNDS))
    yield Row(
        "reshape",
        "CPU ms",
        mine,
        floor,
        3.0,
        data=f"{consumers} consumers x 16 classes",
        runs=f"best of 2, floor of {_ROUNDS}",
    )


def _writing_ms(url: str, consumers: int) -> float:
    """CPU ms of parsing a body and writing what it names, a statement for each table."""
    amounts = {f"CUSTOM_RESHAPE_{number}": 1 for number in range(16)}
    body = orjson.dumps(
        {
            str(uuid.uuid4()): {
                "allocations": {str(uuid.uuid4()): {"resources": amounts}},
                "consumer_generation": 1,
                **OWNER,
            }
            for _ in range(consumers)
        }
    )
    with psycopg.connect(url) as connection:
        held_rows = connection.execute(
            "SELECT resource_provider_id, consumer_id, resource_class_id, used FROM allocations "
            "WHERE consumer_id IN (SELECT consumer_id FROM allocations GROUP BY consumer_id "
            "HAVING count(*) = 16 LIMIT %s)",
            (consumers,),
        ).fetchall()
        columns = [list(column) for column in zip(*held_rows, strict=True)]
        uuids = list(set(columns[1]))
        started_at = time.process_time()
        orjson.loads(body)
        connection.execute("DELETE FROM allocations WHERE consumer_id = ANY(%s)", (uuids,))
        connection.execute(
            "INSERT INTO allocations (resource_provider_id, consumer_id, resource_class_id, used) "
            "SELECT * FROM unnest(%s::int[], %s::text[], %s::int[], %s::int[])",
            columns,
        )
        connection.execute(
            "UPDATE consumers SET generation = generation + 1 WHERE uuid = ANY(%s)", (uuids,)
        )
        connection.rollback()
        return 1000 * (time.process_time() - started_at)
