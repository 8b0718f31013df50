"""A connection to libvirt whose calls come back: each returns, fails, or is given up.

    not connected ──open──► open ──lost (daemon ended, keepalive unanswered)──► not connected
        └── failed: not tried again before the back-off is over

libvirt's event loop runs in a thread of its own, one for the process. It answers the keepalive and
calls back when a connection is lost; nothing that could block runs in it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec import Struct

from compute_agent.discovery.bounded_calls import CLOSING, TIMEOUT, BoundedCalls
from compute_agent.discovery.errors import (
    CallFailed,
    CallHangs,
    CallUnsupported,
    HypervisorUnreachable,
)

if TYPE_CHECKING:
    import libvirt

LOG = logging.getLogger(__name__)

_Result = TypeVar("_Result")

FIRST_BACK_OFF: Final = 0.5
LONGEST_BACK_OFF: Final = 10.0
OPENING: Final = 20.0
"""Seconds in which a daemon accepts a connection. One that does so later is used nevertheless."""


class Keepalive(Struct, frozen=True):
    """Probes that show that a daemon hangs, `interval * (count + 1)` seconds after it did.

    :ivar interval: seconds without traffic before a probe is sent.
    :ivar count: probes without an answer after which the connection is lost.
    """

    interval: int = 5
    count: int = 3


_KEEPALIVE: Final = Keepalive()


class Listener(Struct, frozen=True):
    """What is told of each connection.

    :ivar on_open: registers for events of a new one, before the first call on it.
    :ivar on_loss: takes in why it was lost, in the thread of libvirt's event loop: it must neither
        wait nor call libvirt.
    :ivar closing: takes back what was registered, which would keep the connection's memory.
    """

    on_open: Callable[[libvirt.virConnect], None]
    on_loss: Callable[[str], None]
    closing: Callable[[libvirt.virConnect], None]


class LibvirtConnection:
    """One connection, opened when it is first needed and again after it was lost.

    Safe for threads. Objects that a call returned (domains, devices) are used within a call: any
    method of theirs may ask the daemon.

    :param uri: of libvirt, as `qemu:///system`.
    :param read_only: for a program that changes nothing.
    :param timeout: seconds for one call.
    :ivar openings: how often it was opened.
    """

    def __init__(
        self,
        uri: str,
        *,
        read_only: bool = False,
        timeout: float = TIMEOUT,
        keepalive: Keepalive = _KEEPALIVE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.uri = uri
        self.openings = 0
        self.calls = BoundedCalls(f"libvirt at {uri}", timeout)
        self._read_only = read_only
        self._keepalive = keepalive
        self._clock = clock
        self._mutex = threading.Lock()
        """Held while a connection is opened; never taken in the thread of the event loop."""
        self._connection: libvirt.virConnect | None = None
        self._failure = ""
        self._back_off = 0.0
        self._next_try = clock()
        self._listeners: list[Listener] = []

    def call(self, name: str, function: Callable[[libvirt.virConnect], _Result]) -> _Result:
        """Return what `function` returns for the open connection.

        It runs in another thread, which is given up when it does not return in time.

        :param name: of the call, for messages and the status: getCapabilities, XMLDesc of ...
        :raises HypervisorUnreachable: there is no connection, it was lost, or the call (or an
            earlier one) did not return in time.
        :raises CallUnsupported: the hypervisor does not have the call.
        :raises CallFailed: it rejected the call.
        """
        import libvirt

        def ask() -> _Result:
            connection = self._ensure_open()
            try:
                return function(connection)
            except libvirt.libvirtError as error:
                if error.get_error_code() == libvirt.VIR_ERR_NO_SUPPORT:
                    raise CallUnsupported(name, str(error), error.get_error_code()) from error
                if _is_lost(connection, error):
                    raise HypervisorUnreachable(f"{name} at {self.uri}: {error}") from error
                raise CallFailed(name, str(error), error.get_error_code()) from error

        try:
            if not self.is_open():
                self.calls.run("open", self._ensure_open, timeout=OPENING)
            return self.calls.run(name, ask)
        except CallHangs as error:
            raise HypervisorUnreachable(str(error)) from error

    def add_listener(self, listener: Listener) -> None:
        """Let something listen to each connection from the next one on."""
        self._listeners.append(listener)

    def is_open(self) -> bool:
        """Whether there is a connection that was not lost; nothing is asked."""
        connection = self._connection
        return connection is not None and bool(connection.isAlive())

    def close(self) -> None:
        """Close the connection, if it is open; the next call opens another."""
        try:
            self.calls.run("close", self._close, timeout=CLOSING)
        except CallHangs as error:
            LOG.warning("The connection to libvirt stays open until the process ends: %s.", error)

    def _close(self) -> None:
        with self._mutex:
            connection, self._connection = self._connection, None
            if connection is not None:
                self._let_go(connection)

    def _ensure_open(self) -> libvirt.virConnect:
        """Return the connection, opened if necessary.

        :raises HypervisorUnreachable: it cannot be opened, or could not a moment ago.
        """
        connection = self._connection
        if connection is not None and connection.isAlive():
            return connection
        with self._mutex:
            connection = self._connection
            if connection is not None:
                if connection.isAlive():
                    return connection
                self._connection = None
                self._let_go(connection)
            if self._clock() < self._next_try:
                raise HypervisorUnreachable(self._failure)
            self._connection = self._open()
            return self._connection

    def _open(self) -> libvirt.virConnect:
        import libvirt

        _begin_event_loop()
        flags = libvirt.VIR_CONNECT_RO if self._read_only else 0
        # the credentials are those of libvirt's auth.conf, nobody is prompted
        kinds = [libvirt.VIR_CRED_AUTHNAME, libvirt.VIR_CRED_PASSPHRASE]
        try:
            connection = libvirt.openAuth(
                self.uri, [kinds, lambda _credentials, _data: -1, None], flags
            )
        except libvirt.libvirtError as error:
            self._failure = f"cannot connect to libvirt at {self.uri}: {error}"
            self._back_off = min(max(FIRST_BACK_OFF, 2.0 * self._back_off), LONGEST_BACK_OFF)
            self._next_try = self._clock() + self._back_off
            raise HypervisorUnreachable(self._failure) from error
        self._back_off = 0.0
        self.openings += 1
        probe = partial(connection.setKeepAlive, self._keepalive.interval, self._keepalive.count)
        self._try("keepalive", probe)
        self._try(
            "close callback", lambda: connection.registerCloseCallback(_on_loss, self._listeners)
        )
        for listener in self._listeners:
            self._try("events", partial(listener.on_open, connection))
        return connection

    def _let_go(self, connection: libvirt.virConnect) -> None:
        """Close a connection, and take back what would keep its memory."""
        for listener in self._listeners:
            self._try("events", partial(listener.closing, connection))
        self._try("close callback", connection.unregisterCloseCallback)
        self._try("close", connection.close)

    def _try(self, what: str, call: Callable[[], object]) -> None:
        """Do what a connection can do without: notice losses and changes early, or end well."""
        import libvirt

        try:
            call()
        except libvirt.libvirtError as error:
            LOG.debug("The connection to libvirt at %s, %s: %s", self.uri, what, error)


_event_loop_mutex: Final = threading.Lock()
_event_loops: Final[list[threading.Thread]] = []


def _begin_event_loop() -> None:
    """Begin libvirt's own event loop before the first connection is opened; it never ends."""
    import libvirt

    with _event_loop_mutex:
        if _event_loops:
            return
        # every error is raised as well; libvirt would also print it
        libvirt.registerErrorHandler(lambda _context, _error: None, None)
        libvirt.virEventRegisterDefaultImpl()
        thread = threading.Thread(target=_run_event_loop, name="libvirt events", daemon=True)
        _event_loops.append(thread)
        thread.start()


def _run_event_loop() -> None:
    import libvirt

    pause = threading.Event()
    while True:
        try:
            libvirt.virEventRunDefaultImpl()
        except Exception:
            LOG.exception("libvirt's event loop failed; it goes on.")
            pause.wait(1.0)


def _on_loss(_connection: libvirt.virConnect, reason: int, listeners: list[Listener]) -> None:
    """Pass on that a connection was lost, in the thread of the event loop."""
    import libvirt

    why = {
        libvirt.VIR_CONNECT_CLOSE_REASON_ERROR: "an error of the connection",
        libvirt.VIR_CONNECT_CLOSE_REASON_EOF: "the daemon ended the connection",
        libvirt.VIR_CONNECT_CLOSE_REASON_KEEPALIVE: "the daemon does not answer",
    }
    for listener in tuple(listeners):
        listener.on_loss(why.get(reason, f"reason {reason}"))


def _is_lost(connection: libvirt.virConnect, error: libvirt.libvirtError) -> bool:
    """Whether a call failed for want of its connection, which may be the one before this."""
    import libvirt

    if not connection.isAlive():
        return True
    codes = (libvirt.VIR_ERR_INTERNAL_ERROR, libvirt.VIR_ERR_SYSTEM_ERROR)
    return error.get_error_domain() == libvirt.VIR_FROM_RPC and error.get_error_code() in codes
