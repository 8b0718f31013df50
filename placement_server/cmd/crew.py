"""The worker processes of one server, which hand each other what waits.

A client that keeps its connection keeps it to the worker that accepted it, however busy that one is
and however idle the others. So a worker may pass a connection on before it has read anything of
the next request. Descriptors travel over local sockets (unix(7), SCM_RIGHTS).
"""

from __future__ import annotations

import contextlib
import logging
import mmap
import select
import socket
import time
from collections.abc import Callable, Iterable
from typing import Final

LOG = logging.getLogger(__name__)

#: What a worker reports that can take no more connections.
FULL: Final = 2**31 - 2

_GONE: Final = 2**31 - 1
_WORD: Final = 4
_MESSAGE: Final = b"c"

#: Seconds after a hand-over in which a worker makes no other one only to even out how much there
#: is to do. A hand-over costs about as much as a small request, and loads change all the time.
_PAUSE: Final = 0.05


class Crew:
    """How much each worker has to do, and how to reach it; made before they are forked.

    Each worker has a seat of its own, a number from 0.
    """

    def __init__(self, seats: int, turns: int, clock: Callable[[], float] = time.monotonic) -> None:
        """:param seats: the most workers that can take part at a time.
        :param turns: requests that one worker serves at a time; it lets more of them wait.
        """
        self._turns = turns
        self._clock = clock
        self._paused_until = 0.0
        # A word for each seat, which only the worker on it writes, and the parent when it is gone.
        self._loads = memoryview(mmap.mmap(-1, _WORD * seats)).cast("i")
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(seats)]
        for ends in pairs:
            for end in ends:
                end.setblocking(False)
        self._outward = [outward for outward, _ in pairs]
        self._inward = [inward for _, inward in pairs]
        for seat in range(seats):
            self.leave(seat)

    def free_seat(self, taken: Iterable[int | None]) -> int | None:
        """Return a seat that nobody has, or None when there is none left."""
        return min({*range(len(self._loads))} - {*taken}, default=None)

    def inbox(self, seat: int) -> socket.socket:
        """Return what is readable when a connection waits for the worker on this seat."""
        return self._inward[seat]

    def report(self, seat: int, load: int) -> None:
        """Tell the others how many requests the worker on this seat has, or that it is `FULL`."""
        self._loads[seat] = load

    def leave(self, seat: int) -> None:
        """Tell the others to hand nothing to this seat, until its worker reports again."""
        self._loads[seat] = _GONE

    def clear(self, seat: int) -> None:
        """Pass on what waits for a worker that is gone; close what nobody else can take."""
        self.leave(seat)
        self._pass_on(seat)

    def hand_over(self, connection: socket.socket, load: int) -> bool:
        """Give a connection to the worker that has least to do, if that is less than this load.

        A worker that has not taken what it was given before is given nothing more: it may be stuck.

        :return: whether the connection is another's now. Its descriptor here is closed then, and
            the connection is not shut down.
        """
        to = self._less_busy(load)
        if to is None:
            return False
        try:
            socket.send_fds(self._outward[to], [_MESSAGE], [connection.fileno()])
        except OSError as error:
            LOG.warning("Kept a connection that worker %d has more time for: %s", to, error)
            return False
        # It is gone from here even when the kernel has a complaint.
        with contextlib.suppress(OSError):
            connection.close()
        self._paused_until = self._clock() + _PAUSE
        if self._loads[to] == _GONE:
            # Who left in the meantime may have cleared its seat before this.
            self._pass_on(to)
        return True

    def take(self, seat: int) -> socket.socket | None:
        """Return the next connection that waits for the worker on this seat, if one does."""
        try:
            _, descriptors, _, _ = socket.recv_fds(self._inward[seat], len(_MESSAGE), 1)
        except BlockingIOError:
            return None
        if not descriptors:
            LOG.error(
                "A connection handed over by another worker was lost: this process may not open "
                "more files. Raise its limit (LimitNOFILE= in a systemd unit, or ulimit -n)."
            )
            return None
        taken = socket.socket(fileno=descriptors[0])
        taken.set_inheritable(False)
        return taken

    def _pass_on(self, seat: int) -> None:
        while (connection := self.take(seat)) is not None:
            if not self.hand_over(connection, _GONE):
                connection.close()

    def _less_busy(self, load: int) -> int | None:
        """The seat of a worker that has less to do, least of all, and waits for a connection."""
        loads = self._loads.tolist()
        least = min(loads)
        waits_only_here = load == _GONE or least < self._turns <= load
        if least >= load or (not waits_only_here and self._clock() < self._paused_until):
            return None
        by_load = sorted(range(len(loads)), key=loads.__getitem__)
        less_busy = (seat for seat in by_load if loads[seat] < load)
        return next((seat for seat in less_busy if not self._is_waited_for(seat)), None)

    def _is_waited_for(self, seat: int) -> bool:
        waiting = select.poll()
        waiting.register(self._inward[seat], select.POLLIN)
        return bool(waiting.poll(0))
