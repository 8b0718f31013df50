"""The thread that sees to it that passes happen: by period, by trigger, at once after a signal.

It starts passes in a small pool and waits for whatever comes first: a due time, a trigger, the end
of a pass, a stop. systemd's watchdog is notified when a pass made progress or when none is running,
so a pass that hangs is noticed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from msgspec import Struct, field

from compute_agent.tracker.pass_attempt import PassResult
from compute_agent.tracker.pass_schedule import NEVER, PassSchedule

LOG = logging.getLogger(__name__)

# A pass that waits, say after a conflict, must not keep those of other nodes waiting.
_WAITING: Final = 16


class PassLoop(Struct, eq=False):
    """Runs passes until it is stopped.

    :ivar run_pass: runs the pass of one node, named, with the triggers it answers.
    :ivar before_each: called in the loop's thread whenever it wakes, before passes are started.
    :ivar on_fatal: called with the result of a pass after which the process must end.
    :ivar workers: how many passes `run_pass` works on at once. It is called for some more, which
        wait in it: for their turn, or for another try.
    :ivar watchdog_seconds: how often `notify_watchdog` must be called; None if nobody watches.
    """

    schedule: PassSchedule
    run_pass: Callable[[str, frozenset[str]], PassResult]
    on_fatal: Callable[[PassResult], None]
    clock: Callable[[], float] = time.monotonic
    before_each: Callable[[], None] = lambda: None
    notify_watchdog: Callable[[], None] = lambda: None
    watchdog_seconds: float | None = None
    workers: int = 1
    _wake: threading.Event = field(default_factory=threading.Event)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin."""
        pool = ThreadPoolExecutor(self.workers + _WAITING, thread_name_prefix="pass")
        # its first thread, which does what no other can be started for
        pool.submit(int)
        self._thread = threading.Thread(target=self._run, args=(pool,), name="passes", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Look again at what is due: something was triggered."""
        self._wake.set()

    def stop(self) -> None:
        """Start no pass any more, and let nobody wait for one; those that run are finished."""
        self._stopping.set()
        self.schedule.close()
        self._wake.set()

    def join(self, timeout: float | None = None) -> bool:
        """Wait until all passes have ended; False if they have not in time."""
        if self._thread is None:
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self, pool: ThreadPoolExecutor) -> None:
        longest_wait = NEVER if self.watchdog_seconds is None else self.watchdog_seconds / 3.0
        with pool:
            while not self._stopping.is_set():
                self._wake.clear()
                try:
                    self.before_each()
                except Exception:
                    LOG.exception("The agent itself failed between two passes; it goes on.")
                if self._stopping.is_set():
                    return
                for node, reasons in self.schedule.take_due():
                    LOG.debug("Node %s: pass, asked for by %s.", node, sorted(reasons) or "period")
                    try:
                        pool.submit(self._run_node, node, reasons)
                    except RuntimeError as error:
                        # the pool has it in its queue
                        LOG.warning("Node %s: its pass waits for another one: %s.", node, error)
                if not self.schedule.running_nodes():
                    self.notify_watchdog()
                wait = min(self.schedule.seconds_to_next(), longest_wait)
                self._wake.wait(None if wait == NEVER else wait)

    def _run_node(self, node: str, reasons: frozenset[str]) -> None:
        if self._stopping.is_set():
            return  # it has waited for a thread
        result = PassResult(completed=False, next_in=60.0)
        try:
            result = self.run_pass(node, reasons)
            if result.exit_code is not None:
                self.on_fatal(result)
        except Exception:
            LOG.exception("Node %s: the agent itself failed in a pass; again in 60 s.", node)
        finally:
            self.schedule.finish(node, self.clock() + result.next_in)
            self._wake.set()
