"""Notices to a service manager, and of processes to one that takes its place (sd_notify(3))."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

_CREDENTIALS: Final = struct.Struct("3i")
LONGEST_NOTICE: Final = 4096
"""Bytes of a notice; the service manager ignores a longer one."""
_LONGEST_STATUS: Final = LONGEST_NOTICE - 100
"""Bytes of a status, beside which there is room for the rest of the notice."""


class ServiceManager:
    """The service manager that started this process, or none: then nothing happens.

    :param environment: where NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID are looked up.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        variables = os.environ if environment is None else environment
        self._address = variables.get("NOTIFY_SOCKET", "")
        self.watchdog_seconds = _watchdog_seconds(variables)

    def ready(self, status: str) -> None:
        """Report that the start is over."""
        self._send("READY=1", _status(status))

    def status(self, text: str) -> None:
        """Set the line that `systemctl status` shows."""
        self._send(_status(text))

    def reloading(self) -> None:
        """Report that a reload begins; `ready` ends it."""
        # the time is required for Type=notify-reload; it must be CLOCK_MONOTONIC
        now = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self._send("RELOADING=1", f"MONOTONIC_USEC={now}")

    def stopping(self) -> None:
        """Report that the process is about to end."""
        self._send("STOPPING=1", "STATUS=stopping")

    def watchdog(self) -> None:
        """Report that work goes on: needed more often than `watchdog_seconds`."""
        self._send("WATCHDOG=1")

    def _send(self, *lines: str) -> None:
        if not self._address:
            return
        # a name in the abstract namespace is written with @ in place of the null byte
        address = self._address
        if address.startswith("@"):
            address = "\0" + address[1:]
        # Where the manager is gone nobody is left to notify; where no descriptor is free there will
        # be other notices. The program works on, or ends, without it.
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notify,
        ):
            notify.settimeout(1.0)  # a manager that is stuck must not stop the work
            notify.sendto("\n".join(lines).encode(), address)


def _status(text: str) -> str:
    """Return a text, which may be that of an error, as the one line that is shown."""
    line = " ".join(text.split()).encode()[:_LONGEST_STATUS]
    return f"STATUS={line.decode(errors='ignore')}"


def _watchdog_seconds(variables: Mapping[str, str]) -> float | None:
    microseconds = variables.get("WATCHDOG_USEC", "")
    if not microseconds.isdigit() or int(microseconds) == 0:
        return None
    if variables.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    return int(microseconds) / 1_000_000


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
