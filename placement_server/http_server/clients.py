"""What the embedded server expects of clients: whole requests, in time."""

from __future__ import annotations

import contextlib
import io
import logging
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import Any, Final, Protocol

LOG = logging.getLogger(__name__)

#: Bodies up to this many bytes are kept in memory while they arrive; longer ones in a file,
#: because many clients at once may be slow.
_IN_MEMORY: Final = 65_536

_PIECE: Final = 65_536

#: How much of a body that is too long is read, and thrown away, so that its client has sent it
#: and looks at the answer.
_MOST_DISCARDED: Final = 64 * 1024 * 1024


class Connection(Protocol):
    """A connection of the HTTP server. Its socket is another one after a TLS handshake."""

    sock: socket.socket
    client: Any


class Deadlines:
    """When clients have to be done with what they are at. Thread safe.

    A client that is not is cut off: whatever thread waits for it sees the end of the connection.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until: dict[Connection, float] = {}
        self._lock = threading.Lock()

    def begin(self, connection: Connection) -> None:
        """From now on the client has the whole time again."""
        with self._lock:
            self._until[connection] = time.monotonic() + self._seconds

    def end(self, connection: Connection) -> None:
        """The server is at work, not the client."""
        with self._lock:
            self._until.pop(connection, None)

    def enforce(self) -> None:
        """Cut off whoever has had the time."""
        now = time.monotonic()
        with self._lock:
            late = [connection for connection, until in self._until.items() if until <= now]
            for connection in late:
                del self._until[connection]
        for connection in late:
            LOG.info(
                "Cut off %s: it took more than %s seconds to send a request or to take an answer.",
                connection.client,
                self._seconds,
            )
            # The client may have gone in the meantime.
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def received(environ: dict[str, Any], most: int) -> Iterator[Any]:
    """The whole body of a request as a file, read from a client that may be slow.

    Of a body longer than ``most`` bytes a little more than that, or nothing, is in the file: the
    application refuses it by its length.
    """
    source = environ["wsgi.input"]
    announced = environ.get("CONTENT_LENGTH", "")
    if announced and (not announced.isdecimal() or int(announced) == 0):
        yield io.BytesIO()
    elif announced and int(announced) > most:
        _discard(source)
        yield io.BytesIO()
    elif announced or environ.get("HTTP_TRANSFER_ENCODING"):
        with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as body:
            while body.tell() <= most and (piece := source.read(_PIECE)):
                body.write(piece)
            if body.tell() > most:
                _discard(source)
            body.seek(0)
            yield body
    else:
        yield io.BytesIO()


def _discard(source: Any) -> None:
    discarded = 0
    while discarded < _MOST_DISCARDED and (piece := source.read(_PIECE)):
        discarded += len(piece)
