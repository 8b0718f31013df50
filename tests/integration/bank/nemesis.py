"""The nemesis: a schedule of faults drawn from the seed, each at a moment of the work."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.integration.bank.private_database import PrivateDatabase
from tests.integration.bank.proxy import Cut, Proxy
from tests.integration.bank.service import Service

_REQUESTS = (b"PUT /allocations", b"POST /allocations", b"POST /reshaper", b"DELETE /allocations")
_IN_A_WRITE = {
    # prepared statements do not show their text any more, but how the transaction began does
    "postgresql": b"BEGIN ISOLATION LEVEL READ COMMITTED",
    "mariadb": b"INSERT INTO changes",
}

Strike = Callable[[], threading.Event | None]


@dataclass(frozen=True)
class Fault:
    """``after`` so many acknowledged writes since the last fault was over, ``strike``.

    What it gives tells whether the fault has come: a cut waits for what it cuts.
    """

    after: int
    name: str
    strike: Strike


@dataclass
class Nemesis:
    """Has its hands on everything. All of it works again when a fault is over."""

    dice: random.Random
    service: Service
    database: PrivateDatabase
    to_service: Proxy
    to_database: Proxy | None
    pace: int

    def schedule(self, rounds: int) -> Iterator[Fault]:
        """Every kind of fault once in each round, in an order of its own."""
        for _ in range(rounds):
            kinds = self._kinds()
            self.dice.shuffle(kinds)
            for name, strike in kinds:
                yield Fault(self.dice.randint(self.pace // 2, self.pace), name, strike)

    def _kinds(self) -> list[tuple[str, Strike]]:
        kinds: list[tuple[str, Strike]] = [
            ("kill -9 of a worker", self._kill_worker),
            ("kill -9 of the server", self._kill_service),
            ("restart of the server", self._restart_service),
        ]
        kinds += [self._cut(self.to_service, self.dice.choice(_REQUESTS), cut) for cut in Cut]
        if self.to_database is None:
            return kinds
        kinds += [
            ("kill -9 of the database", self._kill_database),
            ("restart of the database", self._restart_database),
            ("kill -9 of a worker and of the database", self._kill_worker_and_database),
        ]
        if self.database.kind == "postgresql":
            kinds.append(("kill -9 of a database session", self.database.kill_one_session))
        in_a_write = _IN_A_WRITE[self.database.kind]
        kinds += [self._cut(self.to_database, b"COMMIT", cut, in_a_write) for cut in Cut]
        # any statement of a write, whichever is next
        kinds.append(self._cut(self.to_database, b"", self.dice.choice(list(Cut)), in_a_write))
        return kinds

    @staticmethod
    def _cut(proxy: Proxy, marker: bytes, cut: Cut, behind: bytes = b"") -> tuple[str, Strike]:
        def strike() -> threading.Event:
            return proxy.trap(marker, cut, behind)

        return f"cut of {marker.decode() or 'a statement'} {cut.value}", strike

    def _kill_worker(self) -> None:
        self.service.kill_worker(self.dice)

    def _kill_service(self) -> None:
        self.service.kill()
        self.to_service.upstream = self.service.start()

    def _restart_service(self) -> None:
        status = self.service.stop()
        assert status == 0, f"the server ended with {status} after SIGTERM"
        self.to_service.upstream = self.service.start()

    def _kill_database(self) -> None:
        self.database.kill()
        self.database.start()

    def _restart_database(self) -> None:
        self.database.stop()
        self.database.start()

    def _kill_worker_and_database(self) -> None:
        self.database.kill()
        self.service.kill_worker(self.dice)
        self.database.start()
