"""Journal of what is still to be done when the process dies or placement fails.

One JSON object per line: `{"id": ..., "entry": {...}}` opens an entry, `{"id": ..., "done":
true}` closes it. Appending is atomic enough: a line that was cut off by a crash is the last one,
and its entry was not begun yet. Several processes may share the file.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

from compute_agent.request.errors import SchedulerError
from compute_agent.state import documents
from compute_agent.state.documents import MAX_BYTES, FileUnusable, NoJson
from compute_agent.state.shapes import BOOLEAN, Shape, is_not, object_of


def _identity(value: Any) -> str | None:
    try:
        uuid.UUID(value)
    except (ValueError, TypeError, AttributeError):
        return is_not(value, "a uuid")
    return None


_LINE: Final = Shape(
    "a line of the journal",
    object_of({"id": _identity}, {"done": BOOLEAN, "entry": object_of({})}),
)


class JournalUnusable(SchedulerError):
    """The journal cannot be written or read, so that nothing that needs it may begin."""


class Journal:
    """Entries that are open until they are closed, also over restarts."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def open(self, entry: Mapping[str, Any]) -> str:
        """Write down an entry and return its id.  It is on disk when this returns.

        :raises JournalUnusable: the file cannot be written.
        """
        identity = str(uuid.uuid4())
        self._append({"id": identity, "entry": dict(entry)})
        return identity

    def update(self, identity: str, entry: Mapping[str, Any]) -> None:
        """Replace what is written down under an id."""
        self._append({"id": identity, "entry": dict(entry)})

    @contextmanager
    def begin(self, entry: Mapping[str, Any]) -> Iterator[str]:
        """Record an entry that no other scheduler processes until the block ends; yield its id.

        An entry that is still open after the block is for `taken_over`.

        :raises JournalUnusable: the file cannot be written.
        """
        identity = str(uuid.uuid4())
        with self._alone(identity) as alone:
            if not alone:
                raise self._unusable(OSError("a new entry is locked already"))
            self._append({"id": identity, "entry": dict(entry)})
            yield identity

    @contextmanager
    def taken_over(self, identity: str, shape: Shape) -> Iterator[dict[str, Any] | None]:
        """Yield an open entry, to be processed in the block; `None` when there is nothing to do.

        That is when another process or thread works on it, or it was closed meanwhile.

        :raises JournalUnusable: the file cannot be read, or the entry is not what `shape` says.
        """
        with self._alone(identity) as alone:
            entry = self.entries().get(identity) if alone else None
            if entry is not None:
                self._check(identity, entry, shape)
            elif alone:
                # closed meanwhile: that caller has removed the lock that is made here again
                self._lock_path(identity).unlink(missing_ok=True)
            yield entry

    def close(self, identity: str) -> None:
        """Mark an entry as done; once all are, the file is emptied."""
        with self._lock() as file:
            self._write_line(file, {"id": identity, "done": True})
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

    def entries_of(self, op: str, shape: Shape) -> dict[str, dict[str, Any]]:
        """Return the open entries of one operation by id, the oldest first.

        :raises JournalUnusable: the file cannot be read, or one of them is not what `shape` says.
        """
        entries = {i: entry for i, entry in self.entries().items() if entry.get("op") == op}
        for identity, entry in entries.items():
            self._check(identity, entry, shape)
        return entries

    def _check(self, identity: str, entry: Mapping[str, Any], shape: Shape) -> None:
        misfit = shape.misfit(entry)
        if misfit is not None:
            raise self._unusable(FileUnusable(f"is damaged: of entry {identity}, {misfit}"))

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

    def _append(self, line: Mapping[str, Any]) -> None:
        with self._lock() as file:
            self._write_line(file, line)

    def _write_line(self, file: BinaryIO, line: Mapping[str, Any]) -> None:
        if not _ends_a_line(file):
            # what a crash cut off must not swallow this line
            file.write(b"\n")
        file.write(json.dumps(line, sort_keys=True).encode() + b"\n")
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
            line = documents.parse(text, _LINE)
        except NoJson:
            # a line that a crash cut off: its entry was never begun
            continue
        except FileUnusable as error:
            raise FileUnusable(f"{error}, in line {number}") from error
        if line.get("done"):
            entries.pop(line["id"], None)
        elif "entry" in line:
            entries[line["id"]] = line["entry"]
    return entries
