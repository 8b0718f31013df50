"""Exchanges with a running server, by several clients, and what they found."""

from __future__ import annotations

import itertools
import math
import socket
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

import psutil

from tests.integration.bank.service import Service
from tests.integration.fuzz import kinds
from tests.integration.fuzz.answers import Answer, MalformedAnswer, answers, defect, unanswered

MIB: Final = 2**20
MOST_GROWN: Final = 64.0
"""MiB that a worker may keep, as the documentation of the server says."""
_PATIENCE: Final = 90.0
_SETTLING_SECONDS: Final = 20.0
_MOST_FINDINGS: Final = 20
_LAST: Final = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
"""Sent behind well-formed requests: to a client that half-closes its connection instead, the server
does not answer what it has in progress."""

_WARM: Final = 0.1
"""The part of all requests after which the memory of the workers is looked at first."""


@dataclass
class Findings:
    """What a campaign saw.

    :ivar statuses: answers by kind and status.
    :ivar cut: connections that the server closed without an answer, by kind; only what is not
        HTTP may be treated so.
    :ivar wrong: sentences, each with the number of its exchange.
    :ivar resident: MiB of each worker, early and in the end.
    """

    statuses: dict[str, Counter[int]] = field(default_factory=dict)
    cut: Counter[str] = field(default_factory=Counter)
    exchanges: int = 0
    wrong: list[str] = field(default_factory=list)
    resident: dict[int, list[float]] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def answered(self) -> int:
        return sum(counter.total() for counter in self.statuses.values())


class Campaign:
    """Clients that share the numbers of the exchanges of a seed.

    :param seconds: after which they stop, however many answers have come.
    """

    def __init__(
        self,
        service: Service,
        port: int,
        seed: str,
        requests: int,
        seconds: float = math.inf,
    ) -> None:
        self._service = service
        self._port = port
        self._seed = seed
        self._requests = requests
        self._ends = time.monotonic() + seconds
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self.findings = Findings()

    def run(self, clients: int) -> Findings:
        """Send until so many answers have come, or too much is wrong."""
        begun = time.monotonic()
        for portion in (self._requests * _WARM, self._requests):
            with ThreadPoolExecutor(clients) as pool:
                for client in [pool.submit(self._send_until, portion) for _ in range(clients)]:
                    client.result()
            self._weigh()
        self.findings.seconds = time.monotonic() - begun
        self._judge_workers()
        return self.findings

    def repeat(self, numbers: Sequence[int]) -> Findings:
        """Send some exchanges once more."""
        for number in numbers:
            self._exchange(number)
        return self.findings

    def _send_until(self, answered: float) -> None:
        findings = self.findings
        while findings.answered < answered and len(findings.wrong) < _MOST_FINDINGS:
            if time.monotonic() > self._ends:
                return
            self._exchange(next(self._numbers))

    def _exchange(self, number: int) -> None:
        kind, exchange = kinds.draw(self._seed, number)
        wrong: list[str] = []
        got: list[Answer] = []
        try:
            got.extend(answers(self._sent(exchange)))
        except MalformedAnswer as error:
            wrong.append(str(error))
        except TimeoutError:
            wrong.append(f"no end of the answers within {_PATIENCE:.0f} s")
        # errors are in the form that Accept prefers; a malformed one counts as any, as in OpenStack
        html = any(b"Accept: " in piece for piece in exchange.pieces)
        wrong += filter(None, (defect(answer, html_is_asked_for=html) for answer in got))
        if exchange.well_formed:
            wrong += filter(None, [unanswered(got, exchange.requests + 1)])
        with self._lock:
            self.findings.exchanges += 1
            self.findings.cut[kind] += not got
            counter = self.findings.statuses.setdefault(kind, Counter())
            counter.update(answer.status for answer in got)
            self.findings.wrong += (f"{kind}, exchange {number}: {text}" for text in wrong)

    def _sent(self, exchange: kinds.Exchange) -> bytes:
        """Send the pieces and return all that comes back."""
        received = []
        is_whole = exchange.well_formed
        pieces = (*exchange.pieces, _LAST) if is_whole else exchange.pieces
        with socket.create_connection(("127.0.0.1", self._port), timeout=_PATIENCE) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sender = threading.Thread(target=_send, args=(connection, pieces, is_whole))
            if sum(map(len, pieces)) > 100_000:
                # the server may not read on before its answers are taken
                sender.start()
            else:
                _send(connection, pieces, is_whole)
            try:
                while chunk := connection.recv(65_536):
                    received.append(chunk)
            except ConnectionResetError:
                # refused before all was read: what came before it counts
                pass
            finally:
                if sender.ident is not None:
                    sender.join()
        return b"".join(received)

    def _weigh(self) -> None:
        """Record the memory of the workers, once it is no more than before, or that takes long."""
        deadline = time.monotonic() + _SETTLING_SECONDS
        workers = self._service.workers()
        first = self.findings.resident
        while True:
            now = {worker.pid: worker.memory_info().rss / MIB for worker in workers}
            grown = max(
                (size - first[pid][0] for pid, size in now.items() if pid in first), default=0
            )
            if grown <= MOST_GROWN or time.monotonic() > deadline:
                break
            time.sleep(0.1)
        for pid, size in now.items():
            first.setdefault(pid, []).append(size)

    def _judge_workers(self) -> None:
        findings = self.findings
        self._service.require_running()
        for pid, sizes in findings.resident.items():
            if len(sizes) < 2:
                findings.wrong.append(f"worker {pid} was not there all the time")
            elif sizes[1] - sizes[0] > MOST_GROWN:
                findings.wrong.append(
                    f"worker {pid} grew from {sizes[0]:.0f} to {sizes[1]:.0f} MiB"
                )
            if not psutil.pid_exists(pid):
                findings.wrong.append(f"worker {pid} has ended")
        log = self._service.log.read_text(errors="replace")
        if "Traceback" in log:
            place = log.index("Traceback")
            findings.wrong.append(f"the log has a traceback: {log[place - 300 : place + 3000]}")


def _send(connection: socket.socket, pieces: Sequence[bytes], is_whole: bool) -> None:
    try:
        for piece in pieces:
            connection.sendall(piece)
        if not is_whole:
            connection.shutdown(socket.SHUT_WR)
    except (BrokenPipeError, ConnectionResetError, OSError):
        # the server refused what came before and closed; its answer is read
        return
