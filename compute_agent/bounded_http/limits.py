"""Limits of one answer, the error that names the broken one, and the reader that keeps them.

No honest service comes near them. What does is another sender: a proxy, another service at the
address, or an attacker on the memory or the time of the caller.
"""

from __future__ import annotations

import email.utils
import http.client
import io
import re
import socket
import time
from datetime import UTC
from typing import Any, Final

ANSWER_BYTES: Final = 64 * 1024 * 1024
"""Bytes of a body after decompression, and of a whole answer as it comes."""

JSON_DEPTH: Final = 100
"""Lists and objects of a document that may lie in one another."""

JSON_CONTAINERS: Final = 2_000_000
"""Lists and objects in a document: an empty one is two bytes in an answer and 64 in memory."""

LARGE: Final = 2 * JSON_CONTAINERS
"""Bytes up to which a document cannot have too many of them."""

INTEGER_DIGITS: Final = 19
"""Digits of an integer of 64 bits."""

REDIRECTS: Final = 3
"""Redirects that are followed for one request, all within the same scheme, host and port."""

_BUFFER: Final = 64 * 1024
_NUMBER: Final = r"-?\d+(\.\d+)?"


class LimitExceeded(Exception):
    """An answer breaks a limit; the message continues a sentence that begins with the answer.

    Not an OSError and not a ValueError: the libraries between here and the caller take these for
    broken connections and for bodies that are not JSON.
    """


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
        self.fp = io.BufferedReader(reader, _BUFFER)


def seconds_of(value: str) -> float | None:
    """Return the seconds that a Retry-After asks to wait; `None` for a value without any."""
    if re.fullmatch(_NUMBER, value.strip()):
        return max(0.0, float(value))
    try:
        date = email.utils.parsedate_to_datetime(value)
        return max(0.0, date.replace(tzinfo=date.tzinfo or UTC).timestamp() - time.time())
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
