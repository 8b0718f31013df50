"""Files of the state directory, which survive a restart, a crash and a full disk.

A file has its old content or its new one, never half of it: it is written under a temporary
name, fsynced, renamed, and the directory fsynced. A file with state has a version and a checksum.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import logging
import os
import secrets
import time
from pathlib import Path
from typing import Any, Generic

from msgspec import Struct, to_builtins

from compute_agent import errors
from compute_agent.programs.decoding import Misfit, Value, Whole, convert
from compute_agent.state import documents
from compute_agent.state.documents import FileUnusable

LOG = logging.getLogger(__name__)

VERSION = 1


class StateUnusable(errors.InvalidConfiguration):
    """The state directory or a file in it cannot be used; the message has the remedy."""


class NoSpace(StateUnusable):
    """A full disk under the state directory, which passes: a later start may succeed."""


class AgentRunning(errors.InvalidConfiguration):
    """Another process holds the lock of this state directory."""


def has_no_space(error: OSError) -> bool:
    """Check whether a disk or a quota is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def unwritable(error: OSError, text: str) -> StateUnusable:
    """Return the error for a file or directory that cannot be written."""
    return (NoSpace if has_no_space(error) else StateUnusable)(text)


def make_directory(path: Path, option: str) -> None:
    """Create a directory with its parents if it is missing.

    :param option: the option that names it.
    :raises StateUnusable: it cannot be created.
    """
    try:
        path.mkdir(mode=0o755, parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(
            error,
            f"The directory {path} ({option}) cannot be created: {error.strerror}. Give the "
            "directory above it to the user that runs the agent, or set that option to another.",
        ) from error


def prepare_directory(path: Path) -> None:
    """Create the state directory if it is missing, and make sure it can be written to.

    A full disk is a warning: a start of a host that is known has nothing to write.

    :raises StateUnusable: it cannot be created or written to.
    """
    make_directory(path, "[DEFAULT]state_path")
    try:
        probe(path)
    except OSError as error:
        if has_no_space(error):
            LOG.warning(
                "No space is left for the state directory %s: identity and claims cannot change "
                "until there is some again (df, df --inodes)",
                path,
            )
            return
        raise StateUnusable(
            f"The state directory {path} ([DEFAULT]state_path) cannot be written to: "
            f"{error.strerror}. Give it to the user that runs the agent, or set state_path to "
            "another directory."
        ) from error


def probe(directory: Path, size: int = 4096) -> None:
    """Write a file of so many bytes, one block, and remove it again.

    :raises OSError: it cannot be written.
    """
    path = _temporary(directory / "probe")
    try:
        write_new(path, bytes(size), 0o600)
    finally:
        _remove(path)


def write_atomically(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Replace the file's content, or leave it as it is.

    :raises OSError: it was not replaced.
    """
    temporary = _temporary(path)
    try:
        write_new(temporary, content, mode)
        temporary.rename(path)
    except OSError:
        _remove(temporary)
        raise
    _sync_directory(path.parent)


def create_exclusively(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Create the file with its whole content, or not at all.

    :raises FileExistsError: it exists by now; it is not touched.
    :raises OSError: nothing was created.
    """
    temporary = _temporary(path)
    try:
        write_new(temporary, content, mode)
        # a rename would replace a file that appeared meanwhile, a link never does
        os.link(temporary, path)
    finally:
        _remove(temporary)
    _sync_directory(path.parent)


def write_new(path: Path, content: bytes, mode: int) -> None:
    """Create a file that must not exist, and bring its content to the disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)  # independent of the umask
        file.write(content)
        file.flush()
        os.fsync(descriptor)


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")


def _remove(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        path.unlink()


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def set_aside(path: Path) -> Path:
    """Rename a damaged file with the ending `.broken`, replacing an earlier one.

    :raises OSError: it was not renamed.
    """
    broken_path = path.with_name(f"{path.name}.broken")
    path.rename(broken_path)
    return broken_path


class WriteFailure(Struct, frozen=True):
    """A document that could not be written, since when, and how often that was tried."""

    why: str
    since: float
    tries: int
    size: int


class _Envelope(Struct, frozen=True):
    version: Whole
    sha256: str
    state: Any


class StateFile(Generic[Value]):
    """One JSON document in the state directory, with a version and a checksum.

    :param kind: the type of the document.
    :param loss: what an agent starts without when the file is moved away, for messages.
    :ivar failure: None where the last document was written, or one of its size would be now.
    """

    def __init__(self, path: Path, kind: type[Value], loss: str) -> None:
        self.path = path
        self._kind = kind
        self._loss = loss
        self.failure: WriteFailure | None = None

    def load(self) -> Value | None:
        """Return the document, None without a file.

        :raises StateUnusable: the file cannot be read, is damaged, or is of a newer version.
        """
        try:
            return self._document(documents.parse(documents.read_file(self.path), _Envelope))
        except FileNotFoundError:
            return None
        except FileUnusable as error:
            raise StateUnusable(
                f"The state file {self.path} {error}. Nothing was changed. Restore it from a "
                "backup; only without one, move it away: the agent then starts without "
                f"{self._loss}."
            ) from error

    def _document(self, envelope: _Envelope) -> Value:
        if envelope.version != VERSION:
            raise FileUnusable(
                f"has version {envelope.version}, this agent reads {VERSION}: run the agent that "
                "wrote it"
            )
        try:
            checksum = _checksum(envelope.state)
            if envelope.sha256 != checksum:
                raise FileUnusable(
                    f"was changed: its checksum is {envelope.sha256}, its content has {checksum}"
                )
            return convert(envelope.state, self._kind)
        except RecursionError:
            raise FileUnusable("is damaged: it is nested too deeply") from None
        except Misfit as error:
            raise FileUnusable(f"is damaged: {error}") from error

    def save(self, document: Value) -> None:
        """Replace the document.

        :raises StateUnusable: it cannot be written, or could not be read again; the old one is
            still there.
        """
        state = to_builtins(document, order="sorted")
        envelope = to_builtins(_Envelope(VERSION, _checksum(state), state))
        content = json.dumps(envelope, indent=1, sort_keys=True).encode() + b"\n"
        try:
            self._replace(content)
        except StateUnusable as error:
            self._record_failure(str(error), len(content))
            raise
        self.failure = None

    def try_again(self) -> None:
        """Find out whether a document as large as the one that failed would be written now."""
        if (failure := self.failure) is None or failure.size > documents.MAX_BYTES:
            return
        try:
            probe(self.path.parent, failure.size)
        except OSError:
            self._record_failure(failure.why, failure.size)
        else:
            # unless a larger document has failed meanwhile
            if self.failure is failure:
                self.failure = None

    def _record_failure(self, why: str, size: int) -> None:
        before = self.failure or WriteFailure(why, time.time(), 0, size)
        self.failure = WriteFailure(why, before.since, before.tries + 1, size)

    def _replace(self, content: bytes) -> None:
        if len(content) > documents.MAX_BYTES:
            raise StateUnusable(
                f"The state file {self.path} cannot be written: it would have {len(content)} "
                f"bytes, and is read up to {documents.MAX_BYTES}. The state before is kept."
            )
        try:
            write_atomically(self.path, content)
        except OSError as error:
            raise unwritable(
                error,
                f"The state file {self.path} cannot be written: {error.strerror}. The state before "
                "is kept; free space or correct the permissions of the directory.",
            ) from error


def _checksum(document: Any) -> str:
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


class AgentLock:
    """A lock on the state directory that the kernel releases at any end of its holder."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "agent.lock"
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock.

        :raises AgentRunning: another process holds it; its pid is in the message.
        :raises StateUnusable: the lock file cannot be used.
        """
        try:
            descriptor = documents.open_regular(self.path, os.O_RDWR | os.O_CREAT)
        except FileNotFoundError as error:
            raise self._unusable(f"cannot be created: {error.strerror}") from error
        except FileUnusable as error:
            raise self._unusable(str(error)) from error
        try:
            self._take(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def _take(self, descriptor: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
            raise AgentRunning(
                f"An agent with the state directory {self.path.parent} is running already (pid "
                f"{holder}). Stop it first, or set [DEFAULT]state_path to another directory."
            ) from error
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            # the lock is held without its content, which names the holder to others
            if not has_no_space(error):
                raise self._unusable(f"cannot be written: {error.strerror}") from error

    def _unusable(self, reason: str) -> StateUnusable:
        return StateUnusable(
            f"The lock file {self.path} {reason}. It holds nothing but the number of a process: "
            "remove it, or make it writable for the user that runs the agent."
        )

    def release(self) -> None:
        """Release the lock; the file stays, as removing it would race with the next holder."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> AgentLock:
        self.acquire()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.release()
