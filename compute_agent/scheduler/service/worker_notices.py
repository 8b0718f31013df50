"""Notices of worker processes, sent the way a service manager receives them (sd_notify(3))."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_CREDENTIALS: Final = struct.Struct("3i")
LONGEST_NOTICE = 4096


@dataclass(frozen=True, slots=True)
class Notice:
    """What one process has sent: names to values, such as `READY` to `1`."""

    pid: int
    values: Mapping[str, str]


class WorkerNotices:
    """A socket that workers take for that of their service manager."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        # the kernel adds the process that sent, which a worker cannot make up
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        # for an empty name the kernel chooses one in the abstract namespace that is free
        self._socket.bind("")

    def environment(self) -> dict[str, str]:
        """Return the environment of a worker: as here, but its notices come to this socket."""
        name: bytes = self._socket.getsockname()
        variables = {**os.environ, "NOTIFY_SOCKET": "@" + name[1:].decode("ascii")}
        # it names the process that the real service manager watches
        variables.pop("WATCHDOG_PID", None)
        return variables

    def receive(self) -> Notice:
        """Wait for a notice and return it."""
        size = socket.CMSG_SPACE(_CREDENTIALS.size)
        text, ancillary, _, _ = self._socket.recvmsg(LONGEST_NOTICE, size)
        [(_, _, credentials)] = ancillary
        pid, _, _ = _CREDENTIALS.unpack(credentials)
        lines = text.decode("utf-8", "replace").splitlines()
        return Notice(pid, dict(line.split("=", 1) for line in lines if "=" in line))
