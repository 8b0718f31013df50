"""A small HTTP client whose own cost stays below what it measures."""

import socket
from typing import Any
from urllib.parse import urlsplit

import orjson

HEADERS = {
    "X-Auth-Token": "admin",
    "OpenStack-API-Version": "placement 1.39",
    "Accept": "application/json",
    "Content-Type": "application/json",
}
_PIECE = 262_144


class Client:
    """One connection, kept open where the server allows it. Not for use by several threads.

    It speaks just as much HTTP/1.1 as the two servers do: answers with a length, or none at all.

    :param timeout: seconds to wait for an answer; `TimeoutError` comes after that.
    """

    def __init__(self, url: str, timeout: float = 600) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        self._address = (parts.hostname, parts.port)
        self._timeout = timeout
        self._socket: socket.socket | None = None
        headers = {"Host": parts.netloc, **HEADERS}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self._head = f" HTTP/1.1\r\n{lines}Content-Length: "

    def send(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        """The status and the raw body of the answer."""
        payload = b"" if body is None else orjson.dumps(body)
        request = f"{method} {path}{self._head}{len(payload)}\r\n\r\n".encode() + payload
        is_kept = self._socket is not None
        try:
            return self._exchange(request)
        except (ConnectionResetError, BrokenPipeError):
            self._close()
            if not is_kept:
                raise
            # A kept connection that the server closed while it was idle.
            return self._exchange(request)

    def must(self, method: str, path: str, body: object = None) -> Any:
        """The decoded body; `RuntimeError` with the answer when the status is an error."""
        status, raw = self.send(method, path, body)
        if status >= 400:
            raise RuntimeError(f"{method} {path}: {status} {raw[:500]!r}")
        return orjson.loads(raw) if raw else None

    def _exchange(self, request: bytes) -> tuple[int, bytes]:
        try:
            if self._socket is None:
                self._socket = socket.create_connection(self._address, self._timeout)
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.sendall(request)
            return self._answer(self._socket)
        except TimeoutError:
            # The answer that comes later belongs to nobody.
            self._close()
            raise

    def _answer(self, connection: socket.socket) -> tuple[int, bytes]:
        received_bytes = b""
        while (end := received_bytes.find(b"\r\n\r\n")) < 0:
            received_bytes += self._more(connection)
        head, body = received_bytes[:end].lower() + b"\r\n", bytearray(received_bytes[end + 4 :])
        status = int(head[9:12])
        length = int(_header(head, b"content-length") or 0)
        while len(body) < length:
            body += self._more(connection)
        if _header(head, b"connection") == b"close":
            self._close()
        return status, bytes(body)

    def _more(self, connection: socket.socket) -> bytes:
        piece = connection.recv(_PIECE)
        if not piece:
            raise ConnectionResetError("the server closed the connection")
        return piece

    def _close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _header(head: bytes, name: bytes) -> bytes:
    start = head.find(b"\r\n" + name + b":")
    if start < 0:
        return b""
    start += len(name) + 3
    return head[start : head.index(b"\r\n", start)].strip()
