"""Several processes that serve the bus side by side, and the one that looks after them.

Each worker is a process of its own, not a fork: this one has threads. A worker reads from a pipe
that only this process can write to; when it ends, however it does, so do its workers. They notify
this process as if it were their service manager: the service is ready when all of them are, and
its watchdog is notified when all of them have notified theirs.
"""

from __future__ import annotations

import logging
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import BinaryIO

from msgspec import Struct

from compute_agent.daemon import signals
from compute_agent.programs.systemd import Notice, NoticeSocket, ServiceManager

LOG = logging.getLogger(__name__)

SETTLED_SECONDS = 10.0
"""A worker that ends sooner than this, or fails before it was ready, cannot work: starting it again
would go on for ever."""
STOP_SECONDS = 60.0


class _Worker(Struct, frozen=True):
    process: subprocess.Popen[bytes]
    since: float


class Workers:
    """Starts so many processes, starts those again that fail, and ends them all together.

    :param command: of one worker, which must end when its standard input does.
    :param manager: the service manager of all of them.
    :param variables: of the environment of workers, besides those of this process.
    :param on_end: called with the process id of a worker that has ended.
    :param clock: seconds that only grow.
    """

    def __init__(
        self,
        command: Sequence[str],
        count: int,
        manager: ServiceManager,
        *,
        variables: Mapping[str, str] | None = None,
        on_end: Callable[[int], None] = lambda _pid: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._command = list(command)
        self._count = count
        self._manager = manager
        self._variables = variables or {}
        self._on_end = on_end
        self._clock = clock
        # a worker: that it has ended
        self._events: queue.SimpleQueue[_Worker | Notice | signal.Signals] = queue.SimpleQueue()
        self._running_workers: list[_Worker] = []
        self._notices = NoticeSocket()
        self._ready: set[int] = set()
        self._pids_once_ready: set[int] = set()
        self._pids_heard_of: set[int] = set()
        self._statuses: dict[int, str] = {}

    def run(self) -> int:
        """Work until SIGTERM or SIGINT; return 0, or the status of a worker that cannot work."""
        numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2)
        threading.Thread(target=self._hear, name="notices", daemon=True).start()
        with signals.handle({n: partial(self._events.put, n) for n in numbers}):
            try:
                for _ in range(self._count):
                    self._start()
                return self._look_after()
            finally:
                self._stop()

    def _look_after(self) -> int:
        while True:
            event = self._events.get()
            if isinstance(event, _Worker):
                status = self._handle_end(event)
                if status is not None:
                    return status
            elif isinstance(event, Notice):
                self._handle_notice(event)
            elif event in (signal.SIGHUP, signal.SIGUSR2):
                if event is signal.SIGHUP:
                    self._manager.reloading()
                    self._ready.clear()
                for worker in self._running_workers:
                    worker.process.send_signal(event)
            else:
                return 0

    def _hear(self) -> None:
        while True:
            self._events.put(self._notices.receive())

    def _handle_notice(self, notice: Notice) -> None:
        pids = {worker.process.pid for worker in self._running_workers}
        if notice.pid not in pids:
            # of a worker that has ended since, or of another process that found the socket
            return
        values = notice.values
        self._statuses[notice.pid] = values.get("STATUS", self._statuses.get(notice.pid, ""))
        if "WATCHDOG" in values:
            self._pids_heard_of.add(notice.pid)
            if self._pids_heard_of >= pids:
                self._pids_heard_of.clear()
                self._manager.watchdog()
        all_were_ready = self._ready >= pids
        if "READY" in values:
            self._ready.add(notice.pid)
            self._pids_once_ready.add(notice.pid)
        if self._ready >= pids and not all_were_ready:
            self._manager.ready(self._status())
        elif "STATUS" in values:
            self._manager.status(self._status())

    def _status(self) -> str:
        """Return the statuses of the workers, each once, and how many there are."""
        different = sorted(set(filter(None, self._statuses.values())))
        return f"{len(self._running_workers)} workers: {' / '.join(different)}"

    def _handle_end(self, worker: _Worker) -> int | None:
        self._running_workers.remove(worker)
        self._ready.discard(worker.process.pid)
        self._statuses.pop(worker.process.pid, None)
        self._on_end(worker.process.pid)
        status = worker.process.returncode
        was_ready = worker.process.pid in self._pids_once_ready
        self._pids_once_ready.discard(worker.process.pid)
        if self._clock() - worker.since < SETTLED_SECONDS or (status > 0 and not was_ready):
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
        with signals.deferred():
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                env={**self._notices.environment(), **self._variables},
            )
        worker = _Worker(process, self._clock())
        self._running_workers.append(worker)
        threading.Thread(target=self._wait_for, args=(worker,), daemon=True).start()
        LOG.info("Worker %d was started", process.pid)

    def _wait_for(self, worker: _Worker) -> None:
        worker.process.wait()
        self._events.put(worker)

    def _stop(self) -> None:
        self._manager.stopping()
        for worker in self._running_workers:
            worker.process.terminate()
        deadline = self._clock() + STOP_SECONDS
        for worker in self._running_workers:
            try:
                worker.process.wait(max(deadline - self._clock(), 0.1))
            except subprocess.TimeoutExpired:
                LOG.error("Worker %d did not end in time and is killed", worker.process.pid)
                worker.process.kill()


def when_abandoned(pipe: BinaryIO, stop: Callable[[], None]) -> None:
    """Call `stop`, from a thread, when the process at the other end of `pipe` is gone."""
    # not by its own reader: the lock of that is held until then, and the end of Python wants it
    descriptor = pipe.fileno()

    def watch() -> None:
        while os.read(descriptor, 1):
            LOG.debug("Ignored an unknown message on the pipe of the workers")
        stop()

    threading.Thread(target=watch, name="abandoned", daemon=True).start()
