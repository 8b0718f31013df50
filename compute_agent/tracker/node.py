"""A node of this agent: proposals and state of its passes, and the locks that claims share."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct, field

from compute_agent.tracker.decisions import NodeState

if TYPE_CHECKING:
    from compute_agent.provider_config.additions import MergeResult
    from compute_agent.provider_tree import ProviderTree
    from compute_agent.virt.driver import ClassChange


class FairLock:
    """Mutual exclusion, first come, first served. Not reentrant.

    The pass of a node and claims on it share one. `threading.Lock` makes no promise about order:
    under a burst of claims a pass could wait for ever.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._is_held = False
        self._waiting_turns: deque[threading.Event] = deque()

    def acquire(self, timeout: float | None = None) -> bool:
        """Wait for the turn of this thread; return False if it does not come in time.

        :param timeout: seconds; None: as long as it takes.
        """
        with self._mutex:
            if not self._is_held and not self._waiting_turns:
                self._is_held = True
                return True
            turn = threading.Event()
            self._waiting_turns.append(turn)
        if turn.wait(timeout):
            return True
        with self._mutex:
            if turn in self._waiting_turns:
                self._waiting_turns.remove(turn)
                return False
        return True  # the turn came just now

    def release(self) -> None:
        """Hand the lock to the thread that has waited longest."""
        with self._mutex:
            if not self._is_held:
                raise RuntimeError("The lock of a node is released by a thread not holding it.")
            if self._waiting_turns:
                self._waiting_turns.popleft().set()  # it stays held, by the next one
            else:
                self._is_held = False

    def __enter__(self) -> FairLock:
        self.acquire()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.release()


class HoldableLock(Protocol):
    """A lock, or something that one waits for as for a lock."""

    def acquire(self, *, timeout: float | None = None) -> bool: ...

    def release(self) -> object: ...


class OrderedLocks:
    """Locks that are taken one after the other, and given back the other way round."""

    def __init__(self, *locks: HoldableLock) -> None:
        self._locks = locks

    def acquire(self, *, timeout: float | None = None) -> bool:
        """Take them all; return False, and hold none, if that takes longer than `timeout`."""
        ends = None if timeout is None else time.monotonic() + timeout
        for number, lock in enumerate(self._locks):
            remaining_seconds = None if ends is None else max(ends - time.monotonic(), 0.0)
            if not lock.acquire(timeout=remaining_seconds):
                self._give_back(number)
                return False
        return True

    def release(self) -> None:
        """Give them all back."""
        self._give_back(len(self._locks))

    def _give_back(self, number: int) -> None:
        for lock in reversed(self._locks[:number]):
            lock.release()


class LentLock(Struct, eq=False):
    """A lock that is held, and given back while its holder waits: others come in meanwhile.

    The holder may be several threads that serve one. It is lent as long as any of them waits,
    and held again by all of them when none does any more.
    """

    lock: HoldableLock
    _mutex: threading.Lock = field(default_factory=threading.Lock)
    _waiting_count: int = 0

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._mutex:
            self._waiting_count += 1
            if self._waiting_count == 1:
                self.lock.release()
        try:
            yield
        finally:
            with self._mutex:
                self._waiting_count -= 1
                if self._waiting_count == 0:
                    self.lock.acquire()


class PassTarget(Struct, frozen=True):
    """The node a pass is about, and what the pass may do."""

    name: str
    uuid: str
    rename_allowed: bool = True


class Grounds(Struct, frozen=True):
    """All that a proposal follows from: while they are equal, nothing has changed.

    `reading`: what the driver read of the node or, where it does not say, its tree. `ledger`,
    `config_files`: how often the one was changed and the others were read.
    """

    target: PassTarget
    base: ProviderTree
    reading: object
    capabilities: Mapping[str, bool]
    ledger: int
    config_files: int


class Proposal(Struct):
    """A wanted tree beside the one placement has, ready to be flushed or printed."""

    base: ProviderTree
    wanted_tree: ProviderTree
    allocations: Mapping[str, Mapping[str, Any]] | None
    original_allocations: Mapping[str, Mapping[str, Any]] | None
    merge_result: MergeResult
    root_uuid: str
    problems: list[Exception] = []
    faults_over: frozenset[str] = frozenset()
    """Providers of devices whose mark as broken was taken off."""
    facts: Mapping[str, Any] = {}
    """The driver's facts about the node."""
    caveats: tuple[str, ...] = ()
    """What of the wanted tree is not what it should be, by the driver."""
    grounds: Grounds | None = None
    class_changes: tuple[ClassChange, ...] = ()
    """What classes become by the reshape."""
    guesses: tuple[ClassChange, ...] = ()
    """Those of another size that the driver does not declare."""
    is_settled: bool = False
    """Its flush has shown that there is nothing to do, and would again by the same grounds."""


class Node(Struct):
    """One node that this agent manages, as its passes and claims share it."""

    name: str
    uuid: str
    state: NodeState
    lock: FairLock = field(default_factory=FairLock)
    at_work: FairLock = field(default_factory=FairLock)
    """Keeps passes apart, also while one of them waits and has lent the lock to claims."""
    last: Proposal | None = None
    """What was flushed last: the tree, with the named units of the driver, and its facts."""
