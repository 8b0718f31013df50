"""Searches while 200 requests wait for changes, beside the same searches while none waits.

Two servers of one worker over one database; at one of them as many requests wait as it lets wait,
in the next round at the other. A client searches at both in turn and begins with each as often, so
that neither a slow moment of the machine nor the order makes a difference. Rounds end after some
seconds however slow the machine is, and before the requests that wait are answered; what counts is
the median of what pairs of rounds find.
"""

import contextlib
import math
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
from benchmarks.parts.postgresql import postgresql
from benchmarks.parts.servers import Server, ours
from benchmarks.parts.worlds import FLAT, uuid_of
from benchmarks.reads.rows import FLAT_QUERY

WATCHERS: Final = 200
#: The most that a search may take with them, as a multiple.
BOUND: Final = 1.05

#: Pairs of rounds; in one of a pair the requests wait at one server, in the other at the other.
_PAIRS: Final = 5
_QUICK_PAIRS: Final = 3
_SECONDS: Final = 6.0
_QUICK_SECONDS: Final = 1.5
#: Requests wait for so many seconds; a round, and what goes before it, takes less.
_WAIT: Final = 60
_PATIENCE: Final = 30.0
_QUERY: Final = f"{FLAT_QUERY}&limit=100"
_METRICS: Final = "/-/metrics"
_WAITING: Final = "placement_changes_watchers"
_CONFIG: Final = f"[placement_server]\nmetrics_path = {_METRICS}\n"
_EXTENDED: Final = {**HEADERS, "OpenStack-API-Version": "placement 1.39, placement-ext 1.1"}


@dataclass
class Searches:
    """Milliseconds of the searches of one round at one server, and of its CPU for each."""

    milliseconds: list[float] = field(default_factory=list)
    cpu: float = 0.0

    @property
    def median(self) -> float:
        return statistics.median(self.milliseconds)

    @property
    def slow(self) -> float:
        """What 95 of a hundred searches took at most."""
        return statistics.quantiles(self.milliseconds, n=100)[94]


@dataclass(frozen=True)
class Round:
    """Searches of one round: where no request waits, and where as many as may wait."""

    alone: Searches
    beside: Searches


def show(console: Console, quick: bool) -> bool:
    """Measure; return whether searches hold their bound."""
    table = Table(title=f"Searches beside {WATCHERS} requests that wait: milliseconds")
    for heading in ("", "none waits", f"{WATCHERS} wait", "ratio", "of pairs", "at most", ""):
        table.add_column(heading, justify="right" if heading else "left")
    holds = True
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory)
        with (
            postgresql(path / "postgresql") as cluster,
            ours(path / "alone", f"postgresql+psycopg:{cluster}/ours", 1, _CONFIG) as plain,
            ours(
                path / "beside", f"postgresql+psycopg:{cluster}/ours", 1, _CONFIG
            ) as watched_server,
        ):
            FLAT.load(plain, quick)
            for claims in (False, True):
                rounds = _measure((plain, watched_server), quick, claims)
                searches = sum(len(round_.beside.milliseconds) for round_ in rounds)
                name = f"{searches} searches" + (", a claim before each" if claims else "")
                for text, is_bound in (("median", True), ("slow", False), ("cpu", False)):
                    holds &= _row(table, name, text, rounds, is_bound)
    console.print(table)
    return holds


def _row(table: Table, name: str, text: str, rounds: Sequence[Round], is_bound: bool) -> bool:
    alone = [getattr(round_.alone, text) for round_ in rounds]
    beside = [getattr(round_.beside, text) for round_ in rounds]
    ratios = [other / one for one, other in zip(alone, beside, strict=True)]
    # what makes one server slower than the other is in one round of a pair up, in the other down
    pairs = [math.sqrt(ratios[i] * ratios[i + 1]) for i in range(0, len(ratios), 2)]
    ratio = statistics.median(pairs)
    holds = ratio <= BOUND or not is_bound
    shown_name = {"median": "median", "slow": "95 of 100", "cpu": "server CPU"}[text]
    table.add_row(
        f"{name}: {shown_name}",
        *(f"{statistics.median(alone):.2f}", f"{statistics.median(beside):.2f}", f"{ratio:.3f}"),
        f"{min(pairs):.2f} to {max(pairs):.2f}",
        *((f"{BOUND:g}", "holds" if holds else "FAILS") if is_bound else ("", "")),
    )
    return holds


def _measure(servers: Sequence[Server], quick: bool, claims: bool) -> list[Round]:
    """Search at both servers in turn; the requests wait at one, then at the other."""
    clients = [Client(server.url) for server in servers]
    for client in clients:
        client.must("GET", _QUERY)
    rounds = []
    for number in range(2 * (_QUICK_PAIRS if quick else _PAIRS)):
        round_ = Round(Searches(), Searches())
        both = (round_.alone, round_.beside)
        ordered_searches = both if number % 2 else both[::-1]
        turns = list(zip(clients, ordered_searches, strict=True))
        with _waiting_requests(servers[number % 2]):
            before = [server.cpu_seconds() for server in servers]
            ends = time.monotonic() + (_QUICK_SECONDS if quick else _SECONDS)
            while time.monotonic() < ends or len(round_.alone.milliseconds) < 2:
                turns.reverse()
                for client, searches in turns:
                    if claims:
                        _claim(client)
                    started_at = time.perf_counter()
                    client.must("GET", _QUERY)
                    searches.milliseconds.append(1000 * (time.perf_counter() - started_at))
            for server, cpu, searches in zip(servers, before, ordered_searches, strict=True):
                spent_seconds = server.cpu_seconds() - cpu
                searches.cpu = 1000 * spent_seconds / len(searches.milliseconds)
        rounds.append(round_)
    return rounds


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
def _waiting_requests(server: Server) -> Iterator[None]:
    """Let requests wait, each for changes of a host of its own; afterwards none waits."""
    parts = urlsplit(server.url)
    head = "".join(f"{name}: {value}\r\n" for name, value in {"Host": "x", **_EXTENDED}.items())
    last = requests.get(f"{server.url}/changes", headers=_EXTENDED, timeout=60).json()["last"]
    with contextlib.ExitStack() as stack:
        for number in range(WATCHERS):
            connection = socket.create_connection((parts.hostname, parts.port))
            stack.enter_context(contextlib.closing(connection))
            root = uuid.uuid5(uuid.NAMESPACE_DNS, str(number))
            query = f"after={last}&wait={_WAIT}&root={root}"
            connection.sendall(f"GET /changes?{query} HTTP/1.1\r\n{head}\r\n".encode())
        _wait_until(server, WATCHERS)
        yield
    _wait_until(server, 0)


def _wait_until(server: Server, expected_count: int) -> None:
    give_up = time.monotonic() + _PATIENCE
    while f"{_WAITING} {expected_count}.0" not in (
        metrics := requests.get(server.url + _METRICS, timeout=60).text
    ):
        if time.monotonic() > give_up:
            shown_lines = [line for line in metrics.splitlines() if line.startswith(_WAITING)]
            raise RuntimeError(
                f"{expected_count} requests do not wait at a time, but {shown_lines}"
            )
        time.sleep(0.1)
