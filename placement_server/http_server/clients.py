"""Deadlines of clients, and their requests received whole."""

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

#: Bodies of up to this many bytes are kept in memory while they arrive, longer ones in a file: many
#: clients may be slow at the same time.
_IN_MEMORY: Final = 65_536

_PIECE: Final = 65_536

#: Bytes of a body that is too long that are read and dropped, so that the client gets to the end of
#: sending it and reads the answer.
_MOST_DISCARDED: Final = 64 * 1024 * 1024


class NoRoomForBody(Exception):
    """The body of a request could not be kept in a temporary file."""


class ClientConnection(Protocol):
    """A connection of the HTTP server; a TLS handshake replaces its socket."""

    sock: socket.socket
    client: Any


class Deadlines:
    """The times by which clients must have sent a request or taken an answer. Thread safe.

    A late client is cut off: the thread that waits for it sees the end of the connection.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until: dict[ClientConnection, float] = {}
        self._lock = threading.Lock()

    def begin(self, connection: ClientConnection) -> None:
        """Give the client the whole time, from now on."""
        with self._lock:
            self._until[connection] = time.monotonic() + self._seconds

    def end(self, connection: ClientConnection) -> None:
        """Stop the client's clock: the server has the request now."""
        with self._lock:
            self._until.pop(connection, None)

    def enforce(self) -> None:
        """Cut off the clients whose time is over."""
        now = time.monotonic()
        with self._lock:
            late_connections = [
                connection for connection, until in self._until.items() if until <= now
            ]
            for connection in late_connections:
                del self._until[connection]
        for connection in late_connections:
            LOG.info(
                "Cut off the client %s: it took more than %s seconds ([placement_server]"
                "client_timeout) to send a request or to take an answer.",
                connection.client,
                self._seconds,
            )
            # The client may have gone in the meantime.
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def receive_body(environ: dict[str, Any], most: int) -> Iterator[Any]:
    """Receive the whole body of a request from a client that may be slow; it is a file then.

    Of a body longer than ``most`` bytes the file has a little more than that, or nothing: the
    application refuses it by its length.

    :raises NoRoomForBody: the file cannot be written, for example because the disk is full.
    """
    source = environ["wsgi.input"]
    content_length = environ.get("CONTENT_LENGTH", "")
    if content_length and (not content_length.isdecimal() or int(content_length) == 0):
        yield io.BytesIO()
    elif content_length and int(content_length) > most:
        _discard(source)
        yield io.BytesIO()
    elif content_length or environ.get("HTTP_TRANSFER_ENCODING"):
        with _spooled_file() as body:
            while body.tell() <= most and (piece := source.read(_PIECE)):
                _keep(body, piece, source)
            if body.tell() > most:
                _discard(source)
            body.seek(0)
            yield body
    else:
        yield io.BytesIO()


@contextlib.contextmanager
def _spooled_file() -> Iterator[Any]:
    file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115
    try:
        yield file
    finally:
        # It tries again to write what could not be written, and is closed in any case.
        with contextlib.suppress(OSError):
            file.close()


def _keep(body: Any, piece: bytes, source: Any) -> None:
    try:
        body.write(piece)
        # What is left in a buffer would fail later, when the file is read.
        body.flush()
    except OSError as error:
        LOG.error(
            "A request body of more than %d bytes could not be kept in a temporary file: %s. Make "
            "room in the directory that TMPDIR names, or raise the limit of open files.",
            *(_IN_MEMORY, error),
        )
        _discard(source)
        raise NoRoomForBody(str(error)) from error


def _discard(source: Any) -> None:
    discarded_size = 0
    while discarded_size < _MOST_DISCARDED and (piece := source.read(_PIECE)):
        discarded_size += len(piece)
