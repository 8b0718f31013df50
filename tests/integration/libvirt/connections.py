"""Connections to a daemon under test: questions, guests, reported changes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from compute_agent.discovery.errors import HypervisorUnreachable
from compute_agent.discovery.libvirt.connection import LibvirtConnection
from tests.fixtures.libvirtd import PATIENCE

GUEST = """
<domain type='qemu'>
  <name>tiny</name><memory unit='MiB'>64</memory><vcpu>1</vcpu>
  <os><type arch='x86_64' machine='q35'>hvm</type></os>
</domain>"""


class Changes:
    """What a watcher reported."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self.seen: list[str] = []

    def __call__(self, what: str) -> None:
        with self._condition:
            self.seen.append(what)
            self._condition.notify_all()

    def wait_for(self, words: str) -> None:
        with self._condition:
            assert self._condition.wait_for(
                lambda: any(words in what for what in self.seen), PATIENCE
            ), self.seen


def hostname(connection: LibvirtConnection) -> str:
    return connection.call("getHostname", lambda c: str(c.getHostname()))


def guests(connection: LibvirtConnection) -> list[str]:
    return connection.call(
        "listAllDomains", lambda c: sorted(domain.name() for domain in c.listAllDomains())
    )


def start_guest(connection: LibvirtConnection) -> None:
    connection.call("createXML", lambda c: c.createXML(GUEST).name())


def eventually(call: Callable[[], Any]) -> Any:
    """Return what `call` returns once there is a connection."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return call()
        except HypervisorUnreachable:
            assert time.monotonic() < deadline
            time.sleep(0.05)
