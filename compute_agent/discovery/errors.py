"""Errors in reading a machine.

    DiscoveryError
     ├ FactUnreadable        a file, directory or link could not be read
     ├ FactMalformed         it was read, and is not what the kernel documents
     ├ CallHangs             a call did not return in time
     ├ ProgramFailed         a program that describes a part of it is missing or failed
     ├ HypervisorUnreachable no connection, or a call that does not return
     └ CallFailed            the hypervisor rejected a call
        └ CallUnsupported    ... because it does not have it

A source raises these for what *must* be there. A finder of devices catches them for one device,
leaves that device out with a warning, and goes on with the others.
"""

from __future__ import annotations


class DiscoveryError(Exception):
    """The machine could not be read."""


class FactUnreadable(DiscoveryError):
    """Reading `path` failed; `errno` is the operating system's."""

    def __init__(self, path: str, error: OSError) -> None:
        super().__init__(f"cannot read {path}: {error.strerror or error}")
        self.errno = error.errno


class FactMalformed(DiscoveryError):
    """`path` holds `text` where `expectation` was."""

    def __init__(self, path: str, text: str, expectation: str) -> None:
        super().__init__(f"{path} holds {text[:80]!r}, expected {expectation}")


class CallHangs(DiscoveryError):
    """A call did not return in time, or an earlier one to the same source has not returned."""


class ProgramFailed(DiscoveryError):
    """`command`, as one would type it, did not do its work."""

    def __init__(self, command: str, reason: str) -> None:
        super().__init__(f"{command} failed: {reason}")


class HypervisorUnreachable(DiscoveryError):
    """There is no connection to the hypervisor, or it was lost in the middle of a call."""


class CallFailed(DiscoveryError):
    """The hypervisor rejected a call; `code` is libvirt's, a VIR_ERR_ number."""

    def __init__(self, call: str, reason: str, code: int | None = None) -> None:
        super().__init__(f"{call} failed: {reason}")
        self.code = code


class CallUnsupported(CallFailed):
    """The hypervisor does not have this call: the fact is unknown."""
