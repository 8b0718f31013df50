"""Messages to systemd, as in sd_notify(3): nothing happens where no service manager listens."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping


class ServiceManager:
    """The service manager that started this process, or none.

    :param environment: where NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID are looked up.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        variables = os.environ if environment is None else environment
        self._address = variables.get("NOTIFY_SOCKET", "")
        self.watchdog_seconds = _watchdog_seconds(variables)

    def ready(self, status: str) -> None:
        """Report that the start is over."""
        self._send("READY=1", f"STATUS={status}")

    def status(self, text: str) -> None:
        """Set the line that `systemctl status` shows."""
        self._send(f"STATUS={text}")

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
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notify:
            notify.settimeout(1.0)  # a manager that is stuck must not stop the work
            try:
                notify.sendto("\n".join(lines).encode(), address)
            except OSError:
                # the manager is gone: nobody is left to notify, and the program works on without it
                return


def _watchdog_seconds(variables: Mapping[str, str]) -> float | None:
    microseconds = variables.get("WATCHDOG_USEC", "")
    if not microseconds.isdigit() or int(microseconds) == 0:
        return None
    if variables.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    return int(microseconds) / 1_000_000
