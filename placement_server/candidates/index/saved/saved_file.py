"""The file in which the workers of one machine keep a copy of their index.

A worker that starts reads it, and from the database only what has changed since. Now and then one
of them writes it again, beside its requests::

    index.new     written and flushed, by the worker that holds the lock on index.lock
    index         replaced by it in one step: a reader finds the old file or the new one, whole
"""

import fcntl
import logging
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from placement_server.candidates.index.index import Index
from placement_server.candidates.index.saved.saved_index import SavedIndex, UnusableCopy
from placement_server.store.changes.cursor import Mark, Position
from placement_server.store.errors import StoreError

LOG = logging.getLogger(__name__)

SAVED_EVERY: Final = 300.0
"""Seconds after which a file is written again, if anything has changed."""

_NEW_FOR: Final = 0.9 * SAVED_EVERY
"""Seconds for which a file is new to all workers; one worker writes it again after SAVED_EVERY."""

LARGEST: Final = 2**30
"""Bytes of a file that is read; an index has about 250 for each provider."""

_PRIVATE: Final = 0o600
_OTHERS_MAY_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


class SavedFile:
    """The file in one directory. Thread safe."""

    def __init__(self, directory: Path, *, clock: Callable[[], float] = time.time) -> None:
        self.path = directory / "index"
        self._clock = clock
        self._saved_place: tuple[int, bool] | None = None
        self._looked_at = 0.0
        self._thread: threading.Thread | None = None

    def read(self, now: float) -> SavedIndex | None:
        """Return what the file contains; None, with a line in the log, when that cannot be used.

        :param now: see `SavedIndex.decode`.
        """
        try:
            saved_index = SavedIndex.decode(self._private_bytes(), now)
        except FileNotFoundError:
            return None
        except MemoryError:
            self.refuse("there is not enough memory for it")
            return None
        except (OSError, UnusableCopy) as error:
            self.refuse(error)
            return None
        self._saved_place = _place(saved_index.position)
        return saved_index

    def refuse(self, reason: object) -> None:
        """Log that the file is not used."""
        LOG.warning(
            "The index saved in %s is not used, and all provider trees are read from the database "
            "instead; the file is written again by itself: %s",
            self.path,
            reason,
        )

    def _private_bytes(self) -> bytes:
        # Not a link, and without a wait for a writer of a pipe: others may write the directory.
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        with open(os.open(self.path, flags), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise UnusableCopy("it is not a regular file")
            if status.st_uid != os.geteuid() or status.st_mode & _OTHERS_MAY_WRITE:
                mode = stat.filemode(status.st_mode)
                raise UnusableCopy(
                    f"it belongs to user {status.st_uid} with mode {mode}; "
                    f"expected user {os.geteuid()}, who alone may write it"
                )
            if status.st_size > LARGEST:
                raise UnusableCopy(f"it has {status.st_size} bytes, more than {LARGEST}")
            # Not more, if it grows meanwhile.
            return file.read(status.st_size)

    def save_when_due(
        self,
        index: Index,
        read_generations: Callable[[], Mapping[int, int]],
        position: Position,
        marks: Sequence[Mark],
    ) -> None:
        """Begin to write the file in a thread, when it is old and something has changed.

        :param read_generations: returns by root the sum of the generations of its tree.
        :param position: up to where in the feed of changes the index is.
        :param marks: the newest change records that were read with it.
        """
        now = self._clock()
        if (
            now - self._looked_at < SAVED_EVERY
            or not marks
            or index.left_out
            or _place(position) == self._saved_place
        ):
            return
        self._looked_at = now

        def save() -> None:
            try:
                with self._turn() as is_mine:
                    if is_mine and not self._is_new():
                        self.write(SavedIndex.of(index, read_generations(), position, marks))
                        self._saved_place = _place(position)
            except (OSError, StoreError) as error:
                self._log_failure(error)

        self._thread = threading.Thread(target=save, name="saved-index", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            self._thread = None
            self._log_failure(error)

    def wait(self) -> None:
        """Wait until what `save_when_due` began is done."""
        if self._thread is not None:
            self._thread.join()

    def _log_failure(self, error: Exception) -> None:
        LOG.warning(
            "The index could not be saved in %s, and this is tried again in %d s; until then "
            "workers that start read more from the database: %s",
            self.path,
            SAVED_EVERY,
            error,
        )

    def _is_new(self) -> bool:
        """Check whether another worker has written the file while this one was not looking."""
        try:
            return 0 <= self._clock() - self.path.stat().st_mtime < _NEW_FOR
        except FileNotFoundError:
            return False

    @contextmanager
    def _turn(self) -> Iterator[bool]:
        """Take the turn to write, unless another worker has it."""
        flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        file = os.open(self.path.with_suffix(".lock"), flags, _PRIVATE)
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True
        finally:
            os.close(file)

    def write(self, saved_index: SavedIndex) -> None:
        """Replace the file in one step.

        :raises OSError: it cannot be written; the old one stays.
        """
        new_path = self.path.with_suffix(".new")
        new_path.unlink(missing_ok=True)
        try:
            with open(
                os.open(new_path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _PRIVATE), "wb"
            ) as file:
                for part in saved_index.encode():
                    file.write(part)
                file.flush()
                os.fsync(file.fileno())
            new_path.replace(self.path)
        except OSError:
            # The disk is full perhaps, and others need the room.
            new_path.unlink(missing_ok=True)
            raise


def _place(position: Position) -> tuple[int, bool]:
    return position.last, bool(position.gaps)
