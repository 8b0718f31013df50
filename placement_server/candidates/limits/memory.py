"""The memory that the searches of one worker process hold, counted by estimate as it is taken.

Each search has an `Account` that its parts charge for what they keep (see `sizes`).
The index is not counted, and neither is what a single step needs for a moment.

    |---- heavy searches: five eighths at most ----|--- light ones ---|-- summaries, kept --|
"""

import ctypes
import gc
import threading
from collections.abc import Callable
from typing import Final

from placement_server.candidates.errors import SearchGaveUp, TooMuchMemory, WorkerOutOfMemory

MIB: Final = 1024 * 1024

# Accounts ask for memory in steps, so that counting needs a lock seldom.
_STEP: Final = 256 * 1024
# After a search that held this much, free memory is handed back to the system.
_WORTH_RETURNING: Final = 8 * MIB

_malloc_trim: Final = getattr(ctypes.CDLL(None), "malloc_trim", None)


def return_free_memory() -> None:
    """Hand memory that is free in this process back to the system.

    CPython keeps thousands of freed tuples for later, until a full collection, and with each of
    them a megabyte around it. glibc keeps what small blocks were in, in an arena for each thread;
    other C libraries lack the call and return memory on their own.
    """
    gc.collect()
    if _malloc_trim is not None:
        _malloc_trim(0)


class SearchMemory:
    """Memory that all searches of a process hold, in bytes. Thread safe.

    :param per_search: the most that one search may hold.
    :param in_all: the most that all may hold, with the answers that are still being sent.
    :param return_memory: called after a search that held much.
    :ivar granted_size: memory granted to the open accounts.
    """

    def __init__(
        self,
        per_search: int,
        in_all: int,
        return_memory: Callable[[], None] = return_free_memory,
    ) -> None:
        self.per_search = per_search
        self.in_all = in_all
        self.return_memory = return_memory
        self.granted_size = 0
        self._lock = threading.Lock()

    @property
    def summaries(self) -> int:
        """The part for texts of provider summaries that are kept for later answers."""
        return self.in_all // 8

    def grant(self, size: int, *, heavy: bool) -> None:
        """Let a search hold this much more, or less when the size is negative.

        :raises WorkerOutOfMemory: all searches together would hold too much.
        """
        # What heavy searches may not take is there for those that need little.
        most = self.in_all - self.summaries - (self.in_all // 4 if heavy else 0)
        with self._lock:
            if size > 0 and self.granted_size + size > most:
                raise WorkerOutOfMemory(most)
            self.granted_size += size


class Account:
    """Memory that one search holds, in bytes. It belongs to one thread at a time.

    :param memory: grants the memory; without it there is no limit.
    :ivar heavy: whether this is a heavy search, which leaves some memory to others.
    """

    __slots__ = ("_granted_bytes", "_memory", "_most_granted", "heavy", "held_bytes")

    def __init__(self, memory: SearchMemory | None = None) -> None:
        self._memory = memory
        self._granted_bytes: float = 0 if memory is not None else float("inf")
        self._most_granted: float = 0
        self.heavy = False
        self.held_bytes = 0

    def take(self, size: int) -> None:
        """Count memory that the search is about to hold.

        :raises SearchGaveUp: this search, or all together, would hold more than they may; then
            it is not counted.
        """
        self.held_bytes += size
        if self.held_bytes > self._granted_bytes:
            try:
                self._ask()
            except SearchGaveUp:
                self.held_bytes -= size
                raise

    def give(self, size: int) -> None:
        """Count memory that the search has dropped."""
        self.held_bytes -= size

    def _ask(self) -> None:
        memory = self._memory
        assert memory is not None
        if self.held_bytes > memory.per_search:
            raise TooMuchMemory(memory.per_search)
        self._change(min(self.held_bytes + _STEP, memory.per_search))

    def _change(self, granted_bytes: int) -> None:
        assert self._memory is not None
        self._memory.grant(granted_bytes - int(self._granted_bytes), heavy=self.heavy)
        self._granted_bytes = granted_bytes
        self._most_granted = max(self._most_granted, granted_bytes)

    def settle(self, size: int) -> None:
        """Hold only this much: the search is over, and its answer alone is left."""
        self.held_bytes = size
        if self._memory is not None and size < self._granted_bytes:
            self._change(size)

    def close(self) -> None:
        """Hold nothing any longer. To be called when what was counted has been dropped."""
        self.settle(0)
        if self._memory is not None and self._most_granted >= _WORTH_RETURNING:
            self._most_granted = 0
            self._memory.return_memory()

    def __del__(self) -> None:
        self.close()
