"""Searches while 200 requests wait for changes, beside the same searches while none waits.

Two servers of one worker over one database; at one of them as many requests wait as it lets wait,
in the next round at the other. A client searches at both in turn and begins with each as often, so
that neither a slow moment of the machine nor the order makes a difference.
"""

import contextlib
import socket
import statistics
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import requests
from rich.console import Console
from rich.table import Table

from benchmarks.parts.client import HEADERS, Client
from benchmarks.parts.servers import Server, ours, postgresql
from benchmarks.parts.worlds import FLAT, uuid_of
from benchmarks.reads.rows import FLAT_QUERY

WATCHERS: Final = 200
#: The most that a search may take with them, as a multiple.
BOUND: Final = 1.05

_ROUNDS: Final = 6
_SEARCHES: Final = 200
_QUERY: Final = f"{FLAT_QUERY}&limit=100"
_METRICS: Final = "/-/metrics"
_WAITING: Final = "placement_changes_watchers"
_CONFIG: Final = f"[placement_server]\nmetrics_path = {_METRICS}\n"
_EXTENDED: Final = {**HEADERS, "OpenStack-API-Version": "placement 1.39, placement-ext 1.1"}


@dataclass
class Searches:
    """Milliseconds of searches, and of server CPU for each."""

    milliseconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def share_below(self, share: int) -> float:
        """Return what so many of a hundred searches took at most."""
        return statistics.quantiles(self.milliseconds, n=100)[share - 1]


def show(console: Console, quick: bool) -> bool:
    """Measure; return whether searches hold their bound."""
    table = Table(title=f"Searches beside {WATCHERS} requests that wait: milliseconds")
    for heading in ("", "none waits", f"{WATCHERS} wait", "ratio", "at most", ""):
        table.add_column(heading, justify="right" if heading else "left")
    holds = True
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory)
        with (
            postgresql(path / "postgresql") as cluster,
            ours(path / "alone", f"postgresql+psycopg:{cluster}/ours", 1, _CONFIG) as plain,
            ours(path / "beside", f"postgresql+psycopg:{cluster}/ours", 1, _CONFIG) as watched,
        ):
            FLAT.load(plain, quick)
            for claims in (False, True):
                alone, beside = _measured((plain, watched), quick, claims)
                name = "searches" + (", a claim before each" if claims else "")
                for text, row, other, is_bound in (
                    ("median", alone.share_below(50), beside.share_below(50), True),
                    ("95 of 100", alone.share_below(95), beside.share_below(95), False),
                    (
                        "server CPU",
                        statistics.median(alone.cpu),
                        statistics.median(beside.cpu),
                        False,
                    ),
                ):
                    ratio = other / row
                    kept = ratio <= BOUND or not is_bound
                    holds &= kept
                    table.add_row(
                        f"{name}: {text}",
                        *(f"{row:.2f}", f"{other:.2f}", f"{ratio:.3f}"),
                        *((f"{BOUND:g}", "holds" if kept else "FAILS") if is_bound else ("", "")),
                    )
    console.print(table)
    return holds


def _measured(servers: Sequence[Server], quick: bool, claims: bool) -> tuple[Searches, Searches]:
    """Search at both servers in turn; return those without and with requests that wait."""
    clients = [Client(server.url) for server in servers]
    for client in clients:
        client.must("GET", _QUERY)
    alone, beside = Searches(), Searches()
    for number in range(2 if quick else _ROUNDS):
        watched = number % 2
        measured = (beside, alone) if watched == 0 else (alone, beside)
        turns = list(zip(clients, measured, strict=True))
        with _waiting(servers[watched]):
            before = [server.cpu_seconds() for server in servers]
            for _ in range(_SEARCHES):
                turns.reverse()
                for client, searches in turns:
                    if claims:
                        _claim(client)
                    begun = time.perf_counter()
                    client.must("GET", _QUERY)
                    searches.milliseconds.append(1000 * (time.perf_counter() - begun))
            for server, cpu, searches in zip(servers, before, measured, strict=True):
                searches.cpu.append(1000 * (server.cpu_seconds() - cpu) / _SEARCHES)
    return alone, beside


def _claim(client: Client) -> None:
    """Claim nothing that a search would miss, on a host that nobody watches."""
    consumer = str(uuid.uuid4())
    body = {
        "allocations": {uuid_of("flat-000000"): {"resources": {"DISK_GB": 1}}},
        "project_id": "p",
        "user_id": "u",
        "consumer_generation": None,
        "consumer_type": "INSTANCE",
    }
    client.must("PUT", f"/allocations/{consumer}", body)
    client.must("DELETE", f"/allocations/{consumer}")


@contextlib.contextmanager
def _waiting(server: Server) -> Iterator[None]:
    """Let requests wait, each for changes of a host of its own."""
    parts = urlsplit(server.url)
    head = "".join(f"{name}: {value}\r\n" for name, value in {"Host": "x", **_EXTENDED}.items())
    last = requests.get(f"{server.url}/changes", headers=_EXTENDED, timeout=60).json()["last"]
    with contextlib.ExitStack() as stack:
        for number in range(WATCHERS):
            connection = socket.create_connection((parts.hostname, parts.port))
            stack.enter_context(contextlib.closing(connection))
            query = f"after={last}&wait=60&root={uuid.uuid5(uuid.NAMESPACE_DNS, str(number))}"
            connection.sendall(f"GET /changes?{query} HTTP/1.1\r\n{head}\r\n".encode())
        while (
            f"{_WAITING} {WATCHERS}.0" not in requests.get(server.url + _METRICS, timeout=60).text
        ):
            time.sleep(0.1)
        yield
