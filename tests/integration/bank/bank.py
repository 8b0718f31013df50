"""The whole run: a world, tellers, an observer, a nemesis, and the reckoning."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import sqlalchemy as sa

from placement_server.store import audit
from placement_server.store.allocations import allocations
from placement_server.store.errors import CapacityExceeded
from placement_server.store.records import ConsumerWrite
from placement_server.store.store import Store
from tests.fixtures import programs
from tests.fixtures.clocks import Clock
from tests.integration.bank import world
from tests.integration.bank.connection import Connection
from tests.integration.bank.ledger import Ledger
from tests.integration.bank.observer import Look, Observer, engine_for, look
from tests.integration.bank.private_database import PrivateDatabase
from tests.integration.bank.proxy import Proxy
from tests.integration.bank.reckoning import reckon
from tests.integration.bank.service import Service
from tests.integration.bank.world import World
from tests.integration.nemesis.answers import AnswerProxy
from tests.integration.nemesis.kills import KILLS
from tests.integration.nemesis.small_disk import SmallDisk
from tests.integration.nemesis.stage import Fault, Stage, number_of, schedule

_ROUNDS = 6
"""Each with connections of its own, so that every worker is asked."""
_TRIES = 5


def wrong_searches(port: int, engine: sa.Engine) -> list[str]:
    """Return what searches say is free and is not, or the reverse, while nobody writes."""
    problems: list[str] = []
    for _ in range(_TRIES):
        before = look(engine)
        problems = [problem for _ in range(_ROUNDS) for problem in _wrong(port, before)]
        # a request that nobody waits for any more may still have come
        if not problems or look(engine) == before:
            break
    return sorted(set(problems))


def _wrong(port: int, seen: Look) -> Iterator[str]:
    connection = Connection(port)
    for (provider, name), stock in seen.stock.items():
        free = stock.capacity - seen.sums.get((provider, name), 0)
        if free > 0 and provider not in _hosts(connection, name, free):
            yield f"{free} {name} of {provider} are free, and a search does not find them"
        if provider in _hosts(connection, name, max(free, 0) + 1):
            yield f"a search finds {max(free, 0) + 1} {name} of {provider}, and {free} are free"


def _hosts(connection: Connection, name: str, amount: int) -> set[str]:
    found = connection.must("GET", f"/allocation_candidates?resources={name}:{amount}")
    return {
        provider for request in found["allocation_requests"] for provider in request["allocations"]
    }


_STUCK = 500.0
"""Seconds without one acknowledged write after which nothing is believed to move any more."""
_DATABASE_MIB = 1000
"""Room for a database and what it writes in an hour."""


@dataclass
class Report:
    """What a run saw. It was a good one when there are no violations."""

    seed: str
    seconds: float = 0.0
    looks: int = 0
    faults: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    @property
    def acknowledged(self) -> int:
        return self.counts["acknowledged"]

    def __str__(self) -> str:
        lines = [
            f"seed {self.seed}: {self.acknowledged} acknowledged writes in {self.seconds:.1f} s, "
            f"{len(self.faults)} faults, {self.looks} looks",
            ", ".join(f"{name}: {count}" for name, count in sorted(self.counts.items())),
            *(f"  fault: {fault}" for fault in self.faults),
            *(f"  VIOLATION: {violation}" for violation in self.violations),
        ]
        return "\n".join(lines)


class Tellers:
    """The client processes."""

    def __init__(self, directory: Path, port: int, seed: str, count: int) -> None:
        self._moved = threading.Condition()
        self._acknowledged = 0
        self._ledgers = [directory / f"ledger-{number}.json" for number in range(count)]
        self._errors = directory / "tellers.log"
        self._processes: list[programs.Process] = []
        for number, ledger in enumerate(self._ledgers):
            dots, output = os.pipe()
            with self._errors.open("ab") as errors, open(output, "wb") as written:
                process = programs.start(
                    "tests.integration.bank.teller",
                    *(str(port), seed, str(number), str(directory / "world.json"), str(ledger)),
                    output=written,
                    errors=errors,
                )
            self._processes.append(process)
            threading.Thread(target=self._count, args=(dots,), daemon=True).start()

    def _count(self, pipe: int) -> None:
        with open(pipe, "rb", buffering=0) as written:
            while dots := written.read(4096):
                with self._moved:
                    self._acknowledged += len(dots)
                    self._moved.notify_all()

    def await_writes(self, more: int) -> None:
        """Return after so many more acknowledged writes. Raises AssertionError when stuck."""
        with self._moved:
            goal = self._acknowledged + more
            while self._acknowledged < goal:
                if not self._moved.wait(_STUCK):
                    raise AssertionError(
                        f"no write was acknowledged for {_STUCK:.0f} s; {self.complaints()}"
                    )

    def complaints(self) -> str:
        return self._errors.read_text()[-4000:]

    def finish(self) -> list[Ledger]:
        """Tell them to stop, and wait for what they have to say."""
        for process in self._processes:
            process.send_signal(signal.SIGTERM)
        for process in self._processes:
            status = process.wait(_STUCK)
            assert status == 0, f"a teller ended with {status}: {self.complaints()}"
        return [Ledger.load(path) for path in self._ledgers]

    def kill(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
                process.wait()


@dataclass(frozen=True)
class Equipment:
    """What a run has for its faults.

    :ivar small_disks: whether the database and the server's temporary files get small disks, for
        which a process needs the right to mount.
    :ivar answers: whether writes pass a proxy that spoils answers.
    :ivar clock: whether the server's clock can be set.
    """

    small_disks: bool = False
    answers: bool = False
    clock: bool = False


def run(
    make_database: Callable[[Path], PrivateDatabase],
    directory: Path,
    seed: str,
    *,
    tellers: int,
    workers: int = 2,
    threads: int = 2,
    rounds: int = 1,
    seconds: float = 0.0,
    looks: int = 12,
    pace: int = 20,
    faults: Sequence[Fault] = KILLS,
    longest: float = 3.0,
    equipment: Equipment = Equipment(),
    log: Callable[[str], None] = lambda _: None,
) -> Report:
    """The bank under fire on a private database; `rounds` of every fault there is.

    :param seconds: the least time that it takes, whatever the rounds.
    :param looks: the observer's least number of looks, which a fast machine has no time for in few
        rounds.
    :param longest: seconds for which something stands still at most.
    :param log: receives each fault.
    """
    with contextlib.ExitStack() as stack:
        disk = temporary = clock = answers = None
        environment: dict[str, str] = {}
        home = directory / "database"
        if equipment.small_disks:
            disk = SmallDisk(home, _DATABASE_MIB)
            stack.callback(disk.unmount)
            temporary = SmallDisk(directory / "temporary", 4)
            stack.callback(temporary.unmount)
            environment["TMPDIR"] = str(temporary.path)
        else:
            home.mkdir()
        if equipment.clock:
            clock = Clock(directory / "clock")
            environment |= clock.environment
        database = make_database(home)
        stack.callback(database.close)
        to_database = None
        url = database.url()
        if database.port is not None:
            to_database = Proxy(database.port)
            stack.callback(to_database.close)
            url = database.url(to_database.port)
        service = Service(directory, url, workers=workers, threads=threads, environment=environment)
        stack.callback(lambda: service.kill() if service.runs else None)
        to_service = Proxy(service.start())
        stack.callback(to_service.close)
        port = to_service.port
        if equipment.answers:
            answers = AnswerProxy(port)
            stack.callback(answers.close)
            port = answers.port
        report = Report(seed)
        with _dealing(report, directory, port, database.url(), seed, tellers) as staff:
            stage = Stage(
                random.Random(seed), service, database, to_service, answers, to_database,
                staff.await_writes, longest, disk, temporary, clock,
            )  # fmt: skip
            begun, least = time.monotonic(), number_of(stage, faults, rounds)
            for number, (after, fault) in enumerate(schedule(stage, faults, pace)):
                is_long = time.monotonic() - begun >= seconds and staff.observer.looks >= looks
                if number >= least and is_long:
                    break
                try:
                    staff.await_writes(after)
                    service.require_running()
                    report.faults.append(fault.strike(stage))
                except AssertionError as error:
                    last = f"{report}\n{service.log.read_text()[-8000:]}"
                    raise AssertionError(f"{fault}: {error}\n{last}") from error
                log(f"{time.monotonic() - begun:.0f} s: {report.faults[-1]}")
            staff.await_writes(pace)
            staff.settle = lambda: _settle(report, service, to_service.port, database.url())
        report.violations += exactness(database.url(), staff.last)
        return report


def _settle(report: Report, service: Service, port: int, database_url: str) -> None:
    """After this nothing is under way any more."""
    engine = engine_for(database_url)
    report.violations += wrong_searches(port, engine)
    engine.dispose()
    status = service.stop()
    if status != 0:
        report.violations.append(f"the server ended with {status} after SIGTERM")


class Staff:
    """Those at work in one run."""

    def __init__(self, world: World, tellers: Tellers, observer: Observer) -> None:
        self.world = world
        self.observer = observer
        self.last = Look()
        self.await_writes = tellers.await_writes
        self.settle: Callable[[], None] = lambda: None


@contextlib.contextmanager
def _dealing(
    report: Report, directory: Path, port: int, database_url: str, seed: str, count: int
) -> Iterator[Staff]:
    """Tellers at work and an observer; at the end all that is wrong is in the report."""
    ground = world.build(Connection(port).must, seed)
    ground.save(directory / "world.json")
    engine = engine_for(database_url)
    first: Look = look(engine)
    engine.dispose()
    observer = Observer(database_url, ground)
    tellers = Tellers(directory, port, seed, count)
    began = time.monotonic()
    try:
        staff = Staff(ground, tellers, observer)
        yield staff
        ledgers = tellers.finish()
        report.seconds = time.monotonic() - began
        staff.settle()
    except BaseException:
        tellers.kill()
        with contextlib.suppress(Exception):
            observer.stop()
        report.violations += observer.violations
        raise
    last = staff.last = observer.stop()
    report.looks = observer.looks
    for ledger in ledgers:
        report.counts.update(ledger.counts)
        report.violations += ledger.violations
    report.violations += observer.violations
    report.violations += reckon(ground, first, last, observer.stamps, ledgers)


def exactness(database_url: str, seen: Look) -> list[str]:
    """All that is free can be had, to the unit, and not one more; and the audit finds nothing."""
    problems = []
    store = Store.open(database_url)
    try:
        problems += [str(problem) for problem in store.read(audit.audit)]
        for (provider, name), stock in seen.stock.items():
            free = stock.capacity - seen.sums.get((provider, name), 0)
            if free > 0 and not _claims(store, provider, name, free):
                problems.append(f"{free} {name} of {provider} are free, but cannot be had")
            if _claims(store, provider, name, 1):
                problems.append(f"no {name} of {provider} are free, but one was to be had")
    finally:
        store.close()
    return problems


def _claims(store: Store, provider: str, name: str, amount: int) -> bool:
    write = ConsumerWrite(str(uuid.uuid4()), {provider: {name: amount}}, "p", "u", None, None)
    try:
        store.write(allocations.write, [write])
    except CapacityExceeded:
        return False
    return True
