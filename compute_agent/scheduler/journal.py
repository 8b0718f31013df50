"""Journal of what is still to be done when the process dies or placement fails.

One JSON object per line: ``{"id": ..., "entry": {...}}`` opens an entry, ``{"id": ..., "done":
true}`` closes it. Appending is atomic enough: a line that was cut off by a crash is the last one,
and its entry was not begun yet. Several processes may share the file.
"""

from __future__ import annotations

import fcntl
import json
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from compute_agent.scheduler.errors import SchedulerError


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
    def begun(self, entry: Mapping[str, Any]) -> Iterator[str]:
        """Write down an entry that nobody else works off until the block ends; yield its id.

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
    def taken_over(self, identity: str) -> Iterator[dict[str, Any] | None]:
        """Yield an open entry, to be processed in the block; `None` when there is nothing to do.

        That is when another process or thread works on it, or it was closed meanwhile.
        """
        with self._alone(identity) as alone:
            yield self.entries().get(identity) if alone else None

    def close(self, identity: str) -> None:
        """Mark an entry as done; once all are, the file is emptied."""
        with self._locked() as file:
            self._write_line(file, {"id": identity, "done": True})
            if not _open_entries(file):
                file.truncate(0)
        self._lock_path(identity).unlink(missing_ok=True)

    def entries(self) -> dict[str, dict[str, Any]]:
        """Return the open entries by id, the oldest first."""
        try:
            # no lock: a read that meets a write sees a line that is not complete, and skips it
            with self.path.open(encoding="utf-8") as file:
                return _open_entries(file)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise self._unusable(error) from error

    @contextmanager
    def _alone(self, identity: str) -> Iterator[bool]:
        # a lock goes with the process that holds it, so an entry of one that died is free
        path = self._lock_path(identity)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = path.open("a")
        except OSError as error:
            raise self._unusable(error) from error
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True

    def _lock_path(self, identity: str) -> Path:
        return self.path.with_name(f"{self.path.name}.{identity}.lock")

    def _append(self, line: Mapping[str, Any]) -> None:
        with self._locked() as file:
            self._write_line(file, line)

    def _write_line(self, file: IO[str], line: Mapping[str, Any]) -> None:
        if file.seek(0, os.SEEK_END) and not _ends_a_line(self.path):
            # what a crash cut off must not swallow this line
            file.write("\n")
        file.write(json.dumps(line, sort_keys=True) + "\n")
        file.flush()
        os.fsync(file.fileno())

    @contextmanager
    def _locked(self) -> Iterator[IO[str]]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a+", encoding="utf-8") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                yield file
        except OSError as error:
            raise self._unusable(error) from error

    def _unusable(self, error: OSError) -> JournalUnusable:
        return JournalUnusable(
            f"The journal {self.path} cannot be used: {error.strerror or error}. Make it readable "
            "and writable, or set [compute_scheduler]journal_path to another file."
        )


def _ends_a_line(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def _open_entries(file: IO[str]) -> dict[str, dict[str, Any]]:
    file.seek(0)
    open_entries: dict[str, dict[str, Any]] = {}
    for text in file:
        try:
            line = json.loads(text)
            if line.get("done"):
                open_entries.pop(line["id"], None)
            else:
                open_entries[line["id"]] = line["entry"]
        except (ValueError, KeyError, AttributeError):
            # a line that a crash cut off: its entry was never begun
            continue
    return open_entries
