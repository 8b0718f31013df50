"""Schedule of the passes of nodes: periods, triggers, and no pass that is run twice.

A trigger that arrives while a pass of the node runs is merged, with all others that arrive then,
into one more pass after it. The clock is handed in, nothing here waits.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct, field

NEVER = math.inf


class _Turn(Struct):
    due_at: float
    is_running: bool = False
    reasons: set[str] = set()
    """Why a pass was asked for since the last one began."""
    begun_count: int = 0
    ended_count: int = 0


class PassRequest(Struct, frozen=True):
    """A pass that was asked for: one that begins after the request."""

    node: str
    turn: _Turn
    number: int


class PassSchedule(Struct, eq=False):
    """The due times of all nodes of the agent. Safe for use by several threads.

    :ivar clock: seconds, monotonic.
    """

    clock: Callable[[], float]
    _mutex: threading.Condition = field(default_factory=threading.Condition)
    _turns: dict[str, _Turn] = {}
    _is_closed: bool = False

    def set_nodes(self, nodes: Iterable[str], first_due: float) -> list[str]:
        """Take in the nodes that are managed now; new ones are due at `first_due`.

        A node whose pass runs stays, so that nothing is done with it meanwhile.

        :returns: the nodes that are no longer managed.
        """
        with self._mutex:
            wanted_nodes = dict.fromkeys(nodes)
            gone_nodes = [
                node
                for node, turn in self._turns.items()
                if node not in wanted_nodes and not turn.is_running
            ]
            for node in gone_nodes:
                del self._turns[node]
            for node in wanted_nodes:
                self._turns.setdefault(node, _Turn(due_at=first_due))
            self._mutex.notify_all()
            return gone_nodes

    def trigger(self, reason: str, node: str | None = None) -> bool:
        """Ask for a pass of one node, or of all, as soon as possible.

        :returns: False if there is no such node.
        """
        with self._mutex:
            nodes = list(self._turns) if node is None else [node]
            requests = [self.request_pass(reason, name) for name in nodes]
            return any(requests)

    def take_due(self) -> list[tuple[str, frozenset[str]]]:
        """Return the nodes whose pass is to run now, with the triggers it answers.

        The caller runs them and calls `finish` for each.
        """
        now = self.clock()
        due_nodes = []
        with self._mutex:
            for node, turn in self._turns.items():
                if turn.is_running or not (turn.reasons or turn.due_at <= now):
                    continue
                turn.is_running = True
                turn.begun_count += 1
                due_nodes.append((node, frozenset(turn.reasons)))
                turn.reasons = set()
        return due_nodes

    def finish(self, node: str, next_due: float) -> None:
        """Record the end of a pass; the next is due at `next_due`, or earlier if triggered."""
        with self._mutex:
            turn = self._turns[node]
            turn.is_running = False
            turn.ended_count += 1
            turn.due_at = next_due
            self._mutex.notify_all()

    def request_pass(self, reason: str, node: str) -> PassRequest | None:
        """Ask for a pass of one node as soon as possible, and return what to wait for.

        :returns: None for a node that is not managed.
        """
        with self._mutex:
            turn = self._turns.get(node)
            if turn is None:
                return None
            turn.reasons.add(reason)
            # a running pass may have read before the question was asked, so it does not count
            return PassRequest(node, turn, turn.begun_count + 1)

    def wait_for_passes(self, requests: Sequence[PassRequest], timeout: float) -> bool:
        """Wait until the requested passes have ended, which they may have already.

        That of a node that has gone is not waited for.

        :returns: False if that took longer than `timeout` seconds, or the schedule was closed.
        """

        def have_ended() -> bool:
            return all(
                request.turn.ended_count >= request.number
                or self._turns.get(request.node) is not request.turn
                for request in requests
            )

        with self._mutex:
            self._mutex.wait_for(lambda: self._is_closed or have_ended(), timeout)
            return have_ended()

    def close(self) -> None:
        """Let nobody wait any more: no pass begins."""
        with self._mutex:
            self._is_closed = True
            self._mutex.notify_all()

    def seconds_to_next(self) -> float:
        """Return how long nothing is due, `NEVER` if nothing ever is."""
        now = self.clock()
        with self._mutex:
            idle = [turn for turn in self._turns.values() if not turn.is_running]
            if any(turn.reasons for turn in idle):
                return 0.0
            return max(0.0, min((turn.due_at for turn in idle), default=NEVER) - now)

    def all_have_run(self) -> bool:
        """Return whether a pass of every node has ended."""
        with self._mutex:
            return all(turn.ended_count for turn in self._turns.values())

    def running_nodes(self) -> list[str]:
        """Return the nodes with a running pass."""
        with self._mutex:
            return [node for node, turn in self._turns.items() if turn.is_running]
