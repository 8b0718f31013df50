"""Reader of one answer for urllib3, bounded in time and bytes as a whole."""

from __future__ import annotations

import http.client
import io
import socket
import time
from typing import Any, Final

from compute_agent.bounded_http.limits import ANSWER_BYTES, LimitExceeded

BUFFER: Final = 64 * 1024


class AnswerReader(io.RawIOBase):
    """The bytes of one answer, headers included, all of which must come within a time.

    The timeout of a socket limits one wait for bytes, and a peer that sends a byte before each ends
    never lets go. So each wait gets the time that remains. Unlike a watchdog this needs no second
    thread, and cannot hit a socket that serves another request by now.

    :param seconds: until the last byte; `None` for no limit.
    """

    def __init__(self, arriving: io.RawIOBase, sock: socket.socket, seconds: float | None) -> None:
        super().__init__()
        self._arriving = arriving
        self._socket = sock
        self._seconds = seconds
        self._deadline = None if seconds is None else time.monotonic() + seconds
        self._bytes_left = ANSWER_BYTES

    def readable(self) -> bool:
        """Return true, as `io.RawIOBase` demands of what can be read."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Read what is there, waiting for the first byte.

        :raises LimitExceeded: the time is over, or too much came.
        """
        if self._deadline is not None:
            remaining_seconds = self._deadline - time.monotonic()
            if remaining_seconds <= 0:
                raise self._too_slow()
            self._socket.settimeout(remaining_seconds)
        try:
            count = self._arriving.readinto(buffer)
        except TimeoutError as error:
            raise self._too_slow() from error
        self._bytes_left -= count or 0
        if self._bytes_left < 0:
            raise LimitExceeded(
                f"is more than {ANSWER_BYTES // 2**20} MiB as it comes, and was not read further"
            )
        return count

    def close(self) -> None:
        """Let go of the socket."""
        self._arriving.close()
        super().close()

    def _too_slow(self) -> LimitExceeded:
        return LimitExceeded(
            f"timed out: not all of it came within {self._seconds:.3g} s (option timeout)"
        )


class BoundedAnswer(http.client.HTTPResponse):
    """An answer that takes no longer, from its first byte to its last, than one wait of its socket.

    The `response_class` of a connection: http.client makes one when a request has been sent, and
    one for the answer of a proxy to CONNECT.
    """

    def __init__(self, sock: socket.socket, *arguments: Any, **keywords: Any) -> None:
        super().__init__(sock, *arguments, **keywords)
        reader = AnswerReader(self.fp.detach(), sock, sock.gettimeout())
        self.fp = io.BufferedReader(reader, BUFFER)
