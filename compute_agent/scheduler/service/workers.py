"""Several processes that serve the bus side by side, and the one that looks after them.

Each worker is a process of its own, not a fork: this one has threads. A worker reads from a pipe
that only this process can write to; when it ends, however it does, so do its workers.
"""

from __future__ import annotations

import logging
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from compute_agent.daemon import signals

LOG = logging.getLogger(__name__)

SETTLED_SECONDS = 10.0
"""A worker that ends sooner than this cannot work: starting it again would go on for ever."""
STOP_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class _Worker:
    process: subprocess.Popen[bytes]
    since: float


@dataclass(frozen=True, slots=True)
class _Ended:
    worker: _Worker


class Workers:
    """Starts so many processes, starts those again that fail, and ends them all together.

    :param command: of one worker, which must end when its standard input does.
    :param clock: seconds that only grow.
    """

    def __init__(
        self, command: Sequence[str], count: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._command = list(command)
        self._count = count
        self._clock = clock
        self._events: queue.SimpleQueue[_Ended | signal.Signals] = queue.SimpleQueue()
        self._running: list[_Worker] = []

    def run(self) -> int:
        """Work until SIGTERM or SIGINT; return 0, or the status of a worker that cannot work."""

        def tell(number: signal.Signals) -> Callable[[], None]:
            return lambda: self._events.put(number)

        numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        with signals.handled({number: tell(number) for number in numbers}):
            try:
                for _ in range(self._count):
                    self._start()
                return self._look_after()
            finally:
                self._stop()

    def _look_after(self) -> int:
        while True:
            event = self._events.get()
            if isinstance(event, _Ended):
                status = self._ended(event.worker)
                if status is not None:
                    return status
            elif event is signal.SIGHUP:
                for worker in self._running:
                    worker.process.send_signal(signal.SIGHUP)
            else:
                return 0

    def _ended(self, worker: _Worker) -> int | None:
        self._running.remove(worker)
        status = worker.process.returncode
        if self._clock() - worker.since < SETTLED_SECONDS:
            LOG.error(
                "Worker %d ended with status %d before it could serve; all workers are stopped. "
                "See its messages above",
                worker.process.pid,
                status,
            )
            # a worker that was killed has no status of its own
            return status if status > 0 else 255
        LOG.error("Worker %d ended with status %d and is started again", worker.process.pid, status)
        self._start()
        return None

    def _start(self) -> None:
        process = subprocess.Popen(self._command, stdin=subprocess.PIPE)
        worker = _Worker(process, self._clock())
        self._running.append(worker)
        threading.Thread(target=self._wait_for, args=(worker,), daemon=True).start()
        LOG.info("Worker %d was started", process.pid)

    def _wait_for(self, worker: _Worker) -> None:
        worker.process.wait()
        self._events.put(_Ended(worker))

    def _stop(self) -> None:
        for worker in self._running:
            worker.process.terminate()
        deadline = self._clock() + STOP_SECONDS
        for worker in self._running:
            try:
                worker.process.wait(max(deadline - self._clock(), 0.1))
            except subprocess.TimeoutExpired:
                LOG.error("Worker %d did not end in time and is killed", worker.process.pid)
                worker.process.kill()


def when_abandoned(pipe: BinaryIO, stop: Callable[[], None]) -> None:
    """Call `stop`, from a thread, when the process at the other end of `pipe` is gone."""

    def watch() -> None:
        while pipe.read(1):
            LOG.debug("The pipe of the workers carries nothing of meaning")
        stop()

    threading.Thread(target=watch, name="abandoned", daemon=True).start()
