"""The heap of a worker: how much free memory it keeps, where the C library is glibc."""

import ctypes
import gc
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
_LARGEST_IN_HEAP: Final = 8 * 1024 * 1024
"""Bytes of a block from which on it gets memory of its own, which is returned with it."""

_KEPT_FREE: Final = 16 * 1024 * 1024
"""Bytes of free memory at the end of the heap from which on it is returned."""

_LIBC: Final = ctypes.CDLL(None)


def share_one_heap() -> None:
    """Have all threads allocate from one heap, which keeps some free memory for the next answer.

    glibc gives each thread an arena, and malloc_trim returns the top of none but the first to the
    system: threads that were busy once would keep tens of MiB. As they share the interpreter, they
    do not wait for one another here. Other C libraries have no such call, and no arenas.

    It also returns what an answer of a megabyte took, and the kernel clears it for the next one: a
    quarter of the CPU of such a request.
    """
    mallopt = getattr(_LIBC, "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_IN_HEAP)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_FREE)


def return_free_memory() -> None:
    """Return memory that is free in this process to the system.

    CPython keeps thousands of freed tuples for later, until a full collection, and with each of
    them a megabyte around it.
    """
    gc.collect()
    if hasattr(_LIBC, "malloc_trim"):
        _LIBC.malloc_trim(0)
