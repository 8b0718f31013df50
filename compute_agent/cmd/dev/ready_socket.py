"""Readiness of a process, received the way a service manager does (sd_notify(3))."""

from __future__ import annotations

import socket
from types import TracebackType


class ReadySocket:
    """A socket to which a process sends READY=1.

    Its name is in the abstract namespace, so that no path is too long for it and nothing is left
    behind.
    """

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        # for an empty name the kernel chooses one that is free
        self._socket.bind("")
        self.status = ""

    def __enter__(self) -> ReadySocket:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._socket.close()

    @property
    def address(self) -> str:
        """The value for NOTIFY_SOCKET."""
        name: bytes = self._socket.getsockname()
        return "@" + name[1:].decode("ascii")

    def ready(self) -> bool:
        """Return whether READY=1 has arrived; `status` is then the one sent with it."""
        try:
            lines = self._socket.recv(65536).decode("utf-8", "replace").splitlines()
        except BlockingIOError:
            return False
        for line in lines:
            if line.startswith("STATUS="):
                self.status = line.removeprefix("STATUS=")
        return "READY=1" in lines
