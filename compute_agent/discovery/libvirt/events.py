"""Events of libvirt: guests and devices that change, connections that are lost and come back.

They mean that something changed, not what there is: after one everything is read again. libvirt
delivers them in the thread of its event loop, where they are only put into a queue.

    event loop ──► queue ──► bursts ──► changed("guest web-1 (UUID) started")
        └─ connection lost ──► reconnection ──► changed("libvirt is back")
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from compute_agent.discovery.bursts import QUIET, report_bursts
from compute_agent.discovery.errors import DiscoveryError
from compute_agent.discovery.libvirt.connection import LibvirtConnection, Listener

if TYPE_CHECKING:
    import libvirt

LOG = logging.getLogger(__name__)

RESTART: Final = 5.0
"""Seconds in which a daemon that is restarted is back: a shorter loss is not reported."""
BETWEEN_TRIES: Final = 1.0

LIFECYCLE: Final = {
    "VIR_DOMAIN_EVENT_DEFINED": "was defined",
    "VIR_DOMAIN_EVENT_UNDEFINED": "was undefined",
    "VIR_DOMAIN_EVENT_STARTED": "started",
    "VIR_DOMAIN_EVENT_STOPPED": "stopped",
    "VIR_DOMAIN_EVENT_CRASHED": "crashed",
}
"""Steps in the life of a guest that change what it holds; a paused guest holds what it held."""
GUEST_EVENTS: Final = {
    "VIR_DOMAIN_EVENT_ID_DEVICE_ADDED": "got a device",
    "VIR_DOMAIN_EVENT_ID_DEVICE_REMOVED": "lost a device",
    "VIR_DOMAIN_EVENT_ID_TUNABLE": "has other CPUs",
}
DEVICE_EVENTS: Final = {
    "VIR_NODE_DEVICE_EVENT_ID_LIFECYCLE": "came or went",
    "VIR_NODE_DEVICE_EVENT_ID_UPDATE": "changed",
}


class HypervisorEvents:
    """Reports bursts of events, and a connection that was lost or is back, until it is stopped.

    While there is no connection it opens one: nobody else may ask for one before the next period.

    :param on_change: called once per burst, with its first event in words.
    """

    def __init__(
        self,
        connection: LibvirtConnection,
        on_change: Callable[[str], None],
        *,
        quiet: float = QUIET,
    ) -> None:
        self._connection = connection
        self._events: SimpleQueue[str | None] = SimpleQueue()
        self._deregistrations: dict[libvirt.virConnect, list[Callable[[], object]]] = {}
        self._reason = ""
        """Why the last connection was lost."""
        self._wanted_events = threading.Event()
        """A connection is to be opened, or this is to end."""
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(
                target=report_bursts,
                args=(self._next, on_change, quiet),
                name="libvirt changes",
                daemon=True,
            ),
            threading.Thread(target=self._stay_connected, name="libvirt connection", daemon=True),
        ]

    def start(self) -> None:
        """Begin."""
        self._connection.add_listener(Listener(self._on_open, self._on_loss, self._closing))
        if not self._connection.is_open():
            self._reason = "it was not there yet"
        self._wanted_events.set()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End. A thread that waits for libvirt is left behind."""
        self._stopping.set()
        self._wanted_events.set()
        self._events.put(None)

    # --- called by the connection ---------------------------------------------------------------

    def _on_open(self, connection: libvirt.virConnect) -> None:
        """Register for all events that this libvirt has."""
        if connection in self._deregistrations:
            return
        self._deregistrations[connection] = []
        self._register_guests(connection)
        self._register_devices(connection)

    def _on_loss(self, reason: str) -> None:
        """Have another connection opened."""
        self._reason = reason
        self._wanted_events.set()

    def _closing(self, connection: libvirt.virConnect) -> None:
        """Take the registrations back."""
        import libvirt

        for deregister in self._deregistrations.pop(connection, ()):
            try:
                deregister()
            except libvirt.libvirtError as error:
                LOG.debug("Ignored an event of a closed connection: %s", error)

    # --- registration ---------------------------------------------------------------------------

    def _register_guests(self, connection: libvirt.virConnect) -> None:
        import libvirt

        steps = {getattr(libvirt, name): words for name, words in LIFECYCLE.items()}

        def lifecycle(_connection: Any, domain: Any, event: int, *_rest: Any) -> None:
            if event in steps:
                self._note(domain, steps[event])

        def other(_connection: Any, domain: Any, *rest: Any) -> None:
            self._note(domain, rest[-1])

        for name, words in {"VIR_DOMAIN_EVENT_ID_LIFECYCLE": "", **GUEST_EVENTS}.items():
            callback = other if words else lifecycle
            register = partial(connection.domainEventRegisterAny, None)
            self._register(
                connection, name, register, callback, words, connection.domainEventDeregisterAny
            )

    def _register_devices(self, connection: libvirt.virConnect) -> None:
        def device(_connection: Any, device: Any, *rest: Any) -> None:
            self._events.put(f"device {device.name()} {rest[-1]}")

        for name, words in DEVICE_EVENTS.items():
            register = partial(connection.nodeDeviceEventRegisterAny, None)
            self._register(
                connection, name, register, device, words, connection.nodeDeviceEventDeregisterAny
            )

    def _register(
        self,
        connection: libvirt.virConnect,
        name: str,
        register: Callable[[int, Callable[..., None], str], int],
        callback: Callable[..., None],
        words: str,
        deregister: Callable[[int], object],
    ) -> None:
        """Register for one kind of event, where libvirt and hypervisor have it."""
        import libvirt

        kind = getattr(libvirt, name, None)
        if kind is None:
            return
        try:
            number = register(kind, callback, words)
        except libvirt.libvirtError as error:
            LOG.debug("libvirt at %s has no %s: %s", self._connection.uri, name, error)
            return
        self._deregistrations[connection].append(partial(deregister, number))

    def _note(self, domain: Any, what: str) -> None:
        self._events.put(f"guest {domain.name()} ({domain.UUIDString()}) {what}")

    # --- threads --------------------------------------------------------------------------------

    def _next(self, timeout: float | None) -> str | None:
        try:
            return self._events.get(timeout=timeout)
        except Empty:
            return ""

    def _stay_connected(self) -> None:
        while True:
            self._wanted_events.wait()
            self._wanted_events.clear()
            if self._stopping.is_set():
                return
            self._connect()

    def _connect(self) -> None:
        """Open a connection, or register with the one that is open."""
        reason, self._reason = self._reason, ""
        since, is_reported = time.monotonic(), False
        if reason:
            LOG.info("There is no connection to libvirt at %s: %s.", self._connection.uri, reason)
        while not self._stopping.is_set():
            try:
                self._connection.call("register events", self._on_open)
            except DiscoveryError as error:
                if not is_reported and time.monotonic() - since >= RESTART:
                    is_reported = True
                    self._events.put(f"libvirt is away: {error}")
                self._stopping.wait(BETWEEN_TRIES)
                continue
            if reason:
                LOG.info("The connection to libvirt at %s is open.", self._connection.uri)
                self._events.put("libvirt is back")
            return
