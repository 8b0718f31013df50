"""Changes of the hardware as the kernel reports them: uevents on a netlink socket (netlink(7)).

    add@/devices/pci0000:80/0000:81:00.0 NUL ACTION=add NUL SUBSYSTEM=pci NUL ...

They mean that something changed, not what a host has: after one the host is read again.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import threading
import time
from collections.abc import Callable
from typing import Final

from compute_agent.discovery.bursts import QUIET, report_bursts

SUBSYSTEMS: Final = frozenset({"cpu", "mdev", "memory", "net", "node", "pci"})
"""Subsystems that a host's description is made from."""
PROTOCOL: Final = 15
"""NETLINK_KOBJECT_UEVENT of linux/netlink.h, which Python does not name."""
KERNEL_GROUP: Final = 1
"""Multicast group of the kernel itself; group 2 is udev's."""
LARGEST: Final = 65536


def parse(datagram: bytes) -> str:
    """Return an event in words: what happened to which device of which kind.

    :returns: empty where a datagram holds none of the kernel's, or one that does not change what
        the host has. Interfaces of guests are virtual.
    """
    head, *lines = datagram.decode(errors="replace").split("\0")
    action, at, device = head.partition("@")
    subsystem = dict(line.split("=", 1) for line in lines if "=" in line).get("SUBSYSTEM")
    if not at or subsystem not in SUBSYSTEMS or device.startswith("/devices/virtual/"):
        return ""
    return f"{action} {subsystem} {device.rpartition('/')[2]}"


def kernel_socket() -> socket.socket:
    """Return a socket that hears the kernel.

    :raises OSError: it is not permitted here.
    """
    events = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, PROTOCOL)
    try:
        events.bind((0, KERNEL_GROUP))
    except OSError:
        events.close()
        raise
    return events


class HardwareEvents:
    """Reports bursts of events in a thread of its own, until it is stopped.

    :param on_change: called once per burst, with its first event in words.
    :param source: where datagrams come from; closed in the end.
    """

    def __init__(
        self, on_change: Callable[[str], None], source: socket.socket, *, quiet: float = QUIET
    ) -> None:
        self._source = source
        self._wake_source, self._wake = os.pipe2(os.O_CLOEXEC)
        self._thread = threading.Thread(
            target=report_bursts, args=(self._next, on_change, quiet), name="uevents", daemon=True
        )

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, and wait for the thread."""
        os.write(self._wake, b"x")
        self._thread.join()
        self._source.close()
        os.close(self._wake)
        os.close(self._wake_source)

    def _next(self, timeout: float | None) -> str | None:
        """Return an event in words, empty after `timeout` seconds without one, None to end."""
        sources: list[socket.socket | int] = [self._source, self._wake_source]
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            remaining_seconds = None if until is None else max(0.0, until - time.monotonic())
            ready, _, _ = select.select(sources, [], [], remaining_seconds)
            if self._wake_source in ready:
                return None
            if not ready:
                return ""
            event = self._read()
            if event:
                return event

    def _read(self) -> str:
        try:
            datagram, sender = self._source.recvfrom(LARGEST)
        except OSError as error:
            if error.errno == errno.ENOBUFS:
                return "more events than could be read"
            raise
        if isinstance(sender, tuple) and sender[0] != 0:
            return ""  # not from the kernel
        return parse(datagram)
