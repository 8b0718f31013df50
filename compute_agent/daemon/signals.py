"""Handlers of signals that run in threads of their own.

What a reader must know first:

- Python runs a signal's handler in the main thread, between two instructions, whatever locks the
  main thread holds then. Setting an event or logging from there can deadlock.
- The interpreter's own C handler, however, writes the signal's number to a file descriptor at
  once (`signal.set_wakeup_fd`). A thread that reads from it may do anything.
- A signal without a handler keeps its default action, so each gets one that does nothing.
- Blocking signals and waiting for them instead would be inherited by every child process.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

from compute_agent.programs import log_lines

LOG = logging.getLogger(__name__)

_STOPS: Final = (signal.SIGTERM, signal.SIGINT)
_ORDERS: Final = (signal.SIGHUP, signal.SIGUSR2)


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Keep signals other than those to stop until `handle` serves them: they would end the process.

    To be used before there is any thread. Processes that are started in the block keep them too.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ORDERS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def handle(handlers: Mapping[signal.Signals, Callable[[], None]]) -> Iterator[None]:
    """Call the handler of each signal that arrives, in a thread, until the block is left.

    A stop is served while another handler runs, or hangs: they have a thread of their own. To be
    used in the main thread. At the end the previous handlers are restored.
    """
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    orders: queue.SimpleQueue[signal.Signals | None] = queue.SimpleQueue()
    call = partial(_call, dict(handlers))
    thread = threading.Thread(
        target=_serve, args=(reader, call, orders), name="signals", daemon=True
    )
    thread.start()
    threading.Thread(target=_obey, args=(orders, call), name="orders", daemon=True).start()
    # has threads that wait for the log try again, also after the block
    signal.signal(log_lines.TRY_AGAIN, _nothing)
    before_fd = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    before = {number: signal.signal(number, _nothing) for number in handlers}
    mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, handlers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(before_fd)
        writer.close()
        thread.join()
        reader.close()
        orders.put(None)


@contextlib.contextmanager
def bounded_stop(
    stop: threading.Event, seconds: float, on_late: Callable[[], object]
) -> Iterator[None]:
    """Call `on_late`, from a thread, where the block goes on for so long after `stop` was set.

    The thread is started at once: when the process is to stop there may be none.
    """
    end = threading.Event()

    def watch() -> None:
        stop.wait()
        if not end.wait(seconds):
            on_late()

    threading.Thread(target=watch, name="stop", daemon=True).start()
    try:
        yield
    finally:
        stop.set()
        end.set()


def _nothing(_number: int, _frame: object) -> None:
    """Keep the signal from its default action; the thread of `handle` does the work."""


def _serve(
    reader: socket.socket,
    call: Callable[[signal.Signals], None],
    orders: queue.SimpleQueue[signal.Signals | None],
) -> None:
    while signal_bytes := reader.recv(64):
        for number in map(signal.Signals, signal_bytes):
            if number in _STOPS:
                _have_log_left()
                call(number)
            else:
                orders.put(number)


def _obey(
    orders: queue.SimpleQueue[signal.Signals | None], call: Callable[[signal.Signals], None]
) -> None:
    for number in iter(orders.get, None):
        call(number)


def _call(handlers: Mapping[signal.Signals, Callable[[], None]], number: signal.Signals) -> None:
    handler = handlers.get(number)
    if handler is None:
        return
    try:
        handler()
    except Exception:
        # the next signal, for example SIGTERM, must still be served
        LOG.exception("The handler of signal %s failed.", number.name)


def _have_log_left() -> None:
    """Have a stop not wait for a log that takes no more lines; without a thread for it, it may."""
    with contextlib.suppress(RuntimeError):
        threading.Thread(target=log_lines.leave_when_stuck, daemon=True).start()


def exit_at_once(code: int) -> None:
    """End the process without waiting for threads, its files and sockets closed by the kernel."""
    logging.shutdown()
    os._exit(code)
