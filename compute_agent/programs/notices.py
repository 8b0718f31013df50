"""Notices of other processes, received the way a service manager does (sd_notify(3))."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

_CREDENTIALS: Final = struct.Struct("3i")
LONGEST_NOTICE = 4096


class Notice(Struct, frozen=True):
    """What one process has sent: names to values, such as `READY` to `1`."""

    pid: int
    values: Mapping[str, str]


class NoticeSocket(contextlib.AbstractContextManager["NoticeSocket"]):
    """A socket that processes take for that of their service manager.

    Its name is in the abstract namespace, so that no path is too long for it and nothing is left
    behind.
    """

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        # the kernel adds the process that sent, which a process cannot make up
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        # for an empty name the kernel chooses one that is free
        self._socket.bind("")

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    @property
    def address(self) -> str:
        """The value for NOTIFY_SOCKET."""
        name: bytes = self._socket.getsockname()
        return "@" + name[1:].decode("ascii")

    def environment(self) -> dict[str, str]:
        """Return the environment of a process: as here, but its notices come to this socket."""
        variables = {**os.environ, "NOTIFY_SOCKET": self.address}
        # it names the process that the real service manager watches
        variables.pop("WATCHDOG_PID", None)
        return variables

    def receive(self, flags: int = 0) -> Notice:
        """Wait for a notice and return it.

        :param flags: those of recv(2).
        """
        size = socket.CMSG_SPACE(_CREDENTIALS.size)
        text, ancillary, _, _ = self._socket.recvmsg(LONGEST_NOTICE, size, flags)
        [(_, _, credentials)] = ancillary
        pid, _, _ = _CREDENTIALS.unpack(credentials)
        lines = text.decode("utf-8", "replace").splitlines()
        return Notice(pid, dict(line.split("=", 1) for line in lines if "=" in line))

    def ready(self) -> Notice | None:
        """Return the notice that a process is ready, None while that has not arrived."""
        try:
            notice = self.receive(socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None
        return notice if "READY" in notice.values else None
