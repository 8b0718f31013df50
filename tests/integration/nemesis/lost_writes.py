"""Acknowledged writes that are lost when a standby of PostgreSQL is promoted, counted.

    python -m tests.integration.nemesis.lost_writes --replication asynchronous --behind 0.3

Clients claim and search, each with a connection of its own, until the primary is killed and the
standby takes over, and go on after it. What is lost is lost by the database; what must hold in any
case is that placement agrees with it: no half of a claim, no audit finding, and no worker that
finds what was lost.
"""

from __future__ import annotations

import argparse
import random
import secrets
import shutil
import sys
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from placement_server.store import audit
from placement_server.store.store import Store
from tests.fixtures.databases import postgresql_missing
from tests.integration.bank.connection import Connection, UnansweredRequest
from tests.integration.bank.observer import engine_for, look
from tests.integration.bank.searches import wrong_searches
from tests.integration.bank.service import Service
from tests.integration.bank.world import PROJECT
from tests.integration.nemesis.promotion import Pair

_HOSTS = 8
_CAPACITY = 10_000
_CLIENTS = 4


@dataclass
class Outcome:
    """What clients saw of one promotion, and what was there after it.

    :ivar acknowledged: when, by consumer.
    :ivar lost: seconds between the acknowledgement of each write that is gone and the promotion.
    """

    acknowledged: dict[str, float] = field(default_factory=dict)
    unanswered: int = 0
    lost: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        oldest = f", the oldest {max(self.lost) * 1000:.0f} ms before" if self.lost else ""
        return (
            f"{len(self.acknowledged)} writes acknowledged, {self.unanswered} without an answer, "
            f"{len(self.lost)} lost{oldest}; {self.problems or 'nothing wrong'}"
        )


class Clients:
    """Threads that claim one unit at a time for new consumers, and search now and then."""

    def __init__(self, port: int, hosts: list[str], seed: str, outcome: Outcome) -> None:
        self._port, self._hosts, self._seed, self._outcome = port, hosts, seed, outcome
        self._over = threading.Event()
        self._moved = threading.Condition()
        self._pool = ThreadPoolExecutor(_CLIENTS)
        self._running = [self._pool.submit(self._act, number) for number in range(_CLIENTS)]

    def await_writes(self, more: int) -> None:
        with self._moved:
            goal = len(self._outcome.acknowledged) + more
            assert self._moved.wait_for(lambda: len(self._outcome.acknowledged) >= goal, 120)

    def finish(self) -> None:
        self._over.set()
        self._pool.shutdown()
        for client in self._running:
            client.result()

    def _act(self, number: int) -> None:
        dice, connection = random.Random(f"{self._seed}/{number}"), Connection(self._port)
        while not self._over.is_set():
            consumer, host = str(uuid.UUID(int=dice.getrandbits(128))), dice.choice(self._hosts)
            body: dict[str, Any] = {
                "allocations": {host: {"resources": {"VCPU": 1, "MEMORY_MB": 1}}},
                "consumer_generation": None,
                **PROJECT,
            }
            try:
                answer = connection.send("PUT", f"/allocations/{consumer}", body)
                assert answer.status == 204, answer.error
                with self._moved:
                    self._outcome.acknowledged[consumer] = time.monotonic()
                    self._moved.notify_all()
                if dice.random() < 0.3:
                    connection.send("GET", "/allocation_candidates?resources=VCPU:1")
            except UnansweredRequest:
                self._outcome.unanswered += 1
                time.sleep(0.02)


def measure(
    directory: Path, *, synchronous: bool, behind: float, hang: bool, seed: str, writes: int
) -> Outcome:
    """Promote a standby once under load.

    :param behind: seconds for which the standby gets nothing before the primary is lost.
    """
    outcome = Outcome()
    with ExitStack() as stack:
        (directory / "database").mkdir()
        pair = Pair(directory / "database", synchronous=synchronous)
        stack.callback(pair.close)
        service = Service(directory, pair.url(), workers=2, threads=4)
        port = service.start()
        stack.callback(service.kill)
        hosts = [_host(Connection(port), number) for number in range(_HOSTS)]
        clients = Clients(port, hosts, seed, outcome)
        try:
            clients.await_writes(writes)
            promoted = pair.fail_over(hang=hang, behind=behind)
            clients.await_writes(writes // 2)
        finally:
            clients.finish()
        engine = engine_for(pair.url())
        seen = look(engine)
        outcome.lost = [
            promoted - when
            for consumer, when in outcome.acknowledged.items()
            if consumer not in seen.held
        ]
        if synchronous and outcome.lost:
            outcome.problems.append("acknowledged writes were lost")
        outcome.problems += [
            f"{consumer} holds {amounts}"
            for consumer, held in seen.held.items()
            for amounts in held.values()
            if amounts != {"VCPU": 1, "MEMORY_MB": 1}
        ]
        outcome.problems += wrong_searches(port, engine)
        engine.dispose()
        store = Store.open(pair.url())
        stack.callback(store.close)
        outcome.problems += map(str, store.read(audit.audit))
    return outcome


def _host(connection: Connection, number: int) -> str:
    created = str(uuid.uuid4())
    connection.must("POST", "/resource_providers", {"uuid": created, "name": f"host-{number}"})
    inventories = {name: {"total": _CAPACITY} for name in ("VCPU", "MEMORY_MB")}
    body = {"resource_provider_generation": 0, "inventories": inventories}
    connection.must("PUT", f"/resource_providers/{created}/inventories", body)
    return created


def main() -> int:
    """Promote a standby some times, and print what was lost each time; 1 when anything is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.integration.nemesis.lost_writes")
    replications = ("synchronous", "asynchronous")
    parser.add_argument("--replication", choices=replications, default="synchronous")
    parser.add_argument("--behind", type=float, default=0.0, help="seconds")
    parser.add_argument("--hang", action="store_true", help="the primary stands still")
    parser.add_argument("--writes", type=int, default=300, help="before the promotion")
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--seed", default="1")
    options = parser.parse_args()
    if missing := postgresql_missing():
        parser.error(missing)
    wrong = False
    for number in range(options.times):
        directory = Path("/tmp") / f"lost-writes-{secrets.token_hex(4)}"
        directory.mkdir()
        try:
            outcome = measure(
                directory,
                synchronous=options.replication == "synchronous",
                behind=options.behind,
                hang=options.hang,
                seed=f"{options.seed}/{number}",
                writes=options.writes,
            )
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        sys.stdout.write(f"{options.replication}, {options.behind} s behind: {outcome}\n")
        wrong |= bool(outcome.problems)
    return wrong


if __name__ == "__main__":
    sys.exit(main())
