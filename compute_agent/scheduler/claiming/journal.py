"""Journal of what is still to be done when the process dies or placement fails.

One JSON object per line: `{"id": ..., "entry": {...}}` opens an entry, `{"id": ..., "done":
true}` closes it. Appending is atomic enough: a line that was cut off by a crash is the last one,
and its entry was not begun yet. Several processes may share the file.
"""

from __future__ import annotations

import errno
import fcntl
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from msgspec import Struct, json, to_builtins

from compute_agent.programs.decoding import Misfit, Value, convert
from compute_agent.request.errors import SchedulerError
from compute_agent.state import documents
from compute_agent.state.documents import MAX_BYTES, FileUnusable, NoJson


class _Line(Struct, frozen=True, omit_defaults=True):
    id: uuid.UUID
    done: bool = False
    entry: dict[str, Any] | None = None


Entry = TypeVar("Entry", bound=Struct)
"""A kind of entries; its tag is their `op`."""


class JournalUnusable(SchedulerError):
    """The journal cannot be written or read, so that nothing that needs it may begin."""


class Journal:
    """Entries that are open until they are closed, also over restarts."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def open(self, entry: object) -> str:
        """Write down an entry and return its id.  It is on disk when this returns.

        :raises JournalUnusable: the file cannot be written.
        """
        identity = str(uuid.uuid4())
        self.update(identity, entry)
        return identity

    def update(self, identity: str, entry: object) -> None:
        """Replace what is written down under an id."""
        with self._lock() as file:
            self._write_line(file, _Line(uuid.UUID(identity), entry=to_builtins(entry)))

    @contextmanager
    def begin(self, entry: object) -> Iterator[str]:
        """Record an entry that no other scheduler processes until the block ends; yield its id.

        An entry that is still open after the block is for `taken_over`.

        :raises JournalUnusable: the file cannot be written.
        """
        identity = str(uuid.uuid4())
        with self._alone(identity) as alone:
            if not alone:
                raise self._unusable(OSError("a new entry is locked already"))
            self.update(identity, entry)
            yield identity

    @contextmanager
    def taken_over(self, identity: str, kind: type[Value]) -> Iterator[Value | None]:
        """Yield an open entry, to be processed in the block; `None` when there is nothing to do.

        That is when another process or thread works on it, or it was closed meanwhile.

        :raises JournalUnusable: the file cannot be read, or the entry is not of this kind.
        """
        with self._alone(identity) as alone:
            entry = self.entries().get(identity) if alone else None
            if alone and entry is None:
                # closed meanwhile: that caller has removed the lock that is made here again
                self._lock_path(identity).unlink(missing_ok=True)
            yield None if entry is None else self._value(identity, entry, kind)

    def close(self, identity: str) -> None:
        """Mark an entry as done; once all are, the file is emptied."""
        with self._lock() as file:
            self._write_line(file, _Line(uuid.UUID(identity), done=True))
            self._lock_path(identity).unlink(missing_ok=True)
            if not _open_entries(file):
                file.truncate(0)

    def check(self) -> None:
        """Check that an entry could be written now.

        :raises JournalUnusable: it could not.
        """
        with self._lock() as file:
            if os.fstatvfs(file.fileno()).f_bavail == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def entries(self) -> dict[str, dict[str, Any]]:
        """Return the open entries by id, the oldest first.

        :raises JournalUnusable: the file cannot be read, or is damaged.
        """
        try:
            # no lock: a read that meets a write sees a line that is not complete, and skips it
            with os.fdopen(documents.open_regular(self.path), "rb") as file:
                return _open_entries(file)
        except FileNotFoundError:
            return {}
        except (OSError, FileUnusable) as error:
            raise self._unusable(error) from error

    def entries_of(self, kind: type[Entry]) -> dict[str, Entry]:
        """Return the open entries of one kind by id, the oldest first.

        :raises JournalUnusable: the file cannot be read, or one of them is damaged.
        """
        op = kind.__struct_config__.tag
        return {
            identity: self._value(identity, entry, kind)
            for identity, entry in self.entries().items()
            if entry.get("op") == op
        }

    def _value(self, identity: str, entry: dict[str, Any], kind: type[Value]) -> Value:
        try:
            return convert(entry, kind)
        except Misfit as error:
            raise self._unusable(
                FileUnusable(f"is damaged: of entry {identity}, {error}")
            ) from error

    @contextmanager
    def _alone(self, identity: str) -> Iterator[bool]:
        # a lock goes with the process that holds it, so an entry of one that died is free
        path = self._lock_path(identity)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = documents.open_regular(path, os.O_RDWR | os.O_CREAT)
        except (OSError, FileUnusable) as error:
            raise self._unusable(error) from error
        with os.fdopen(descriptor, "rb+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True

    def _lock_path(self, identity: str) -> Path:
        return self.path.with_name(f"{self.path.name}.{identity}.lock")

    def _write_line(self, file: BinaryIO, line: _Line) -> None:
        if not _ends_a_line(file):
            # what a crash cut off must not swallow this line
            file.write(b"\n")
        file.write(json.encode(line, order="sorted") + b"\n")
        file.flush()
        os.fsync(file.fileno())

    @contextmanager
    def _lock(self) -> Iterator[BinaryIO]:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with os.fdopen(documents.open_regular(self.path, flags), "ab+") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                yield file
        except (OSError, FileUnusable) as error:
            raise self._unusable(error) from error

    def _unusable(self, error: OSError | FileUnusable) -> JournalUnusable:
        if isinstance(error, FileUnusable):
            return JournalUnusable(
                f"The journal {self.path} {error}. Nothing was taken out of it. Make it a file "
                "that can be read and written, and correct or remove what is damaged in it; or "
                "set [compute_scheduler]journal_path to another file."
            )
        return JournalUnusable(
            f"The journal {self.path} cannot be used: {error.strerror or error}. Free "
            "space, make it readable and writable, or set [compute_scheduler]journal_path to "
            "another file."
        )


def _ends_a_line(file: BinaryIO) -> bool:
    size = file.seek(0, os.SEEK_END)
    return size == 0 or os.pread(file.fileno(), 1, size - 1) == b"\n"


def _open_entries(file: BinaryIO) -> dict[str, dict[str, Any]]:
    file.seek(0)
    entries: dict[str, dict[str, Any]] = {}
    number = 0
    while text := file.readline(MAX_BYTES + 1):
        number += 1
        if len(text) > MAX_BYTES:
            raise FileUnusable(f"is damaged: line {number} is longer than {MAX_BYTES} bytes")
        try:
            line = documents.parse(text, _Line)
        except NoJson:
            # a line that a crash cut off: its entry was never begun
            continue
        except FileUnusable as error:
            raise FileUnusable(f"{error}, in line {number}") from error
        if line.done:
            entries.pop(str(line.id), None)
        elif line.entry is not None:
            entries[str(line.id)] = line.entry
    return entries
