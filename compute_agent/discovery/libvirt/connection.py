"""A connection to libvirt whose calls come back: each returns, fails, or is given up."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from compute_agent.discovery.errors import CallFailed, CallUnsupported, HypervisorUnreachable

if TYPE_CHECKING:
    import libvirt

_Result = TypeVar("_Result")

CALL_TIMEOUT: Final = 60.0


class Connection:
    """One connection, opened when it is first needed and again after it was lost.

    :param uri: of libvirt, as `qemu:///system`.
    :param read_only: for a program that changes nothing.
    :param timeout: seconds for one call.
    """

    def __init__(self, uri: str, *, read_only: bool = False, timeout: float = CALL_TIMEOUT) -> None:
        self.uri = uri
        self._read_only = read_only
        self._timeout = timeout
        self._mutex = threading.Lock()
        self._connection: libvirt.virConnect | None = None

    def call(self, name: str, function: Callable[[libvirt.virConnect], _Result]) -> _Result:
        """Return what `function` returns for the open connection.

        :param name: of the call, for messages and the status: getCapabilities, XMLDesc of ...
        :raises HypervisorUnreachable: there is no connection, it was lost, or the call did not
            return in time.
        :raises CallUnsupported: the hypervisor does not have the call.
        :raises CallFailed: it rejected the call.
        """
        import libvirt

        try:
            return function(self._open())
        except libvirt.libvirtError as error:
            if error.get_error_code() == libvirt.VIR_ERR_NO_SUPPORT:
                raise CallUnsupported(name, str(error), error.get_error_code()) from error
            if self._connection is None or not self._connection.isAlive():
                raise HypervisorUnreachable(f"{name} at {self.uri}: {error}") from error
            raise CallFailed(name, str(error), error.get_error_code()) from error

    def close(self) -> None:
        """Close the connection, if it is open."""
        with self._mutex:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _open(self) -> libvirt.virConnect:
        import libvirt

        with self._mutex:
            if self._connection is None or not self._connection.isAlive():
                open_it = libvirt.openReadOnly if self._read_only else libvirt.open
                try:
                    self._connection = open_it(self.uri)
                except libvirt.libvirtError as error:
                    raise HypervisorUnreachable(
                        f"cannot connect to libvirt at {self.uri}: {error}"
                    ) from error
            return self._connection
