"""An explicit-state model of the feed of changes for clients: all that can happen, step by step.

Writers draw ids, insert records and commit in any order or not at all; processes learn how far the
feed is final, and void what is missing; clients read on from where they are, at any process. The
steps have the names of the functions that take them:

=========  ============================================================================
draw       the database gives a transaction the id of its record
insert     the record is in the table, and its id locked, until the transaction ends
commit     it ends; or `roll_back`: the id is used up
read       `Horizon._read` of a process
void       `Horizon._void`: the missing ids that were read become VOID records
settle     `Horizon.settle`, for a client; it ends before all is final where that takes long
answer     `service._answer`: the records behind the client's id, or ChangesPruned
prune      `changes.prune`: all but the newest record go
restart    a process that knows nothing
=========  ============================================================================

Positions are those of the code. Time is left out: what is missing is overdue at once, which allows
more than the code does. Two things that only time and numbers make true are assumed: what is pruned
and what stays is not on both sides of an open transaction (ten minutes and 20,000 ids lie between),
and a process voids what it read before that is pruned.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final, NamedTuple, TypeVar

from placement_server.store.changes.cursor import Position

# What an id is. One that was drawn is locked once its record is inserted.
DRAWN: Final = "drawn"
INSERTED: Final = "inserted"
COMMITTED: Final = "committed"
UNUSED: Final = "unused"
VOID: Final = "void"
PRUNED: Final = "pruned"
PRUNED_VOID: Final = "pruned void"

_OPEN: Final = (DRAWN, INSERTED)
_PRESENT: Final = (COMMITTED, VOID)

IDLE: Final = 0
ENDED: Final = -1

_Alike = TypeVar("_Alike")


class Process(NamedTuple):
    """A process that serves the feed.

    :ivar position: None when nothing was read.
    :ivar voiding: whether it is about to void the gaps of its position.
    """

    position: Position | None = None
    voiding: bool = False


class Client(NamedTuple):
    """A client.

    :ivar start: the id with which it began, None before.
    :ivar last: the id up to which it has everything.
    :ivar seen: the ids that it was shown, ascending.
    :ivar asking: the position that a process settled at for its request, None when there is none.
    """

    start: int | None = None
    last: int = 0
    seen: tuple[int, ...] = ()
    asking: Position | None = None


class State(NamedTuple):
    """Everything at one moment.

    :ivar ids: what each id is, from 1 on.
    :ivar writers: the id that each has, or IDLE or ENDED.
    :ivar prunings: how many may still happen; so with restarts.
    """

    ids: tuple[str, ...]
    writers: tuple[int, ...]
    processes: tuple[Process, ...]
    clients: tuple[Client, ...]
    prunings: int
    restarts: int

    def canonical(self) -> State:
        """Return the state in which those that are alike stand in one order."""
        return State(
            self.ids,
            tuple(sorted(self.writers)),
            _ordered(self.processes),
            _ordered(self.clients),
            self.prunings,
            self.restarts,
        )

    def present(self, start: int) -> list[int]:
        """Return the ids of records from one on."""
        return [n for n, what in enumerate(self.ids, 1) if n >= start and what in _PRESENT]

    def becoming(self, number: int, what: str) -> State:
        return self._replace(ids=(*self.ids[: number - 1], what, *self.ids[number:]))


@cache
def _ordered(alike: tuple[_Alike, ...]) -> tuple[_Alike, ...]:
    # the same objects for the same members, which are quick to compare
    return tuple(sorted(alike, key=hash))


@dataclass(frozen=True)
class Protocol:
    """The steps; those that a test replaces to break the protocol are functions.

    :ivar ids: how many are drawn at most.
    """

    ids: int
    settled: Callable[[Position], int] = lambda position: position.settled_id
    insert_fails: Callable[[str], bool] = lambda what: what == VOID
    is_pruned: Callable[[State, int], bool] = lambda state, last: (
        last < min(state.present(1), default=1) - 1
    )

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Iterate over everything that can happen next, with its name."""
        for place, number in enumerate(state.writers):
            yield from self._writer(state, place, number)
        for place, process in enumerate(state.processes):
            yield from self._process(state, place, process)
        for place, client in enumerate(state.clients):
            yield from self._client(state, place, client)
        yield from self._prune(state)

    def _writer(self, state: State, place: int, number: int) -> Iterator[tuple[str, State]]:
        def now(at: int, then: State = state) -> State:
            return then._replace(writers=(*then.writers[:place], at, *then.writers[place + 1 :]))

        if number == ENDED:
            return
        if number == IDLE:
            if len(state.ids) < self.ids:
                drawn = state._replace(ids=(*state.ids, DRAWN))
                yield "draw", now(len(drawn.ids), drawn)
            return
        what = state.ids[number - 1]
        if what == INSERTED:
            yield "commit", now(ENDED, state.becoming(number, COMMITTED))
            yield "roll_back", now(ENDED, state.becoming(number, UNUSED))
        elif self.insert_fails(what):
            # begun again
            yield "insert", now(IDLE)
        else:
            yield "insert", now(number, state.becoming(number, INSERTED))
            yield "roll_back", now(ENDED, state.becoming(number, UNUSED))

    def _process(self, state: State, place: int, process: Process) -> Iterator[tuple[str, State]]:
        def now(changed: Process, then: State = state) -> State:
            processes = (*then.processes[:place], changed, *then.processes[place + 1 :])
            return then._replace(processes=processes)

        position = read(state, process.position)
        yield "read", now(Process(position, bool(position.gaps)))
        if process.voiding and process.position is not None:
            missing = process.position.missing_ids(100) or []
            # otherwise it waits, or gives up with IdsHeld
            if all(state.ids[number - 1] != INSERTED for number in missing):
                voided = state
                for number in missing:
                    if state.ids[number - 1] in (*_OPEN, UNUSED):
                        voided = voided.becoming(number, VOID)
                yield "void", now(Process(process.position), voided)
        if state.restarts and process != Process():
            yield "restart", now(Process(), state._replace(restarts=state.restarts - 1))

    def _client(self, state: State, place: int, client: Client) -> Iterator[tuple[str, State]]:
        def now(changed: Client) -> State:
            clients = (*state.clients[:place], changed, *state.clients[place + 1 :])
            return state._replace(clients=clients)

        if client.asking is None:
            for number, process in enumerate(state.processes):
                position = read(state, process.position)
                read_by = Process(position, bool(position.gaps))
                processes = (*state.processes[:number], read_by, *state.processes[number + 1 :])
                asked = now(client._replace(asking=position))
                yield "settle", asked._replace(processes=processes)
            return
        settled = self.settled(client.asking)
        if client.start is None:
            yield "answer", now(Client(settled, settled))
        elif self.is_pruned(state, client.last):
            # it begins again
            yield "answer", now(Client())
        else:
            shown = tuple(
                number
                for number in state.present(client.last + 1)
                if number <= settled and state.ids[number - 1] == COMMITTED
            )
            last = max(client.last, settled)
            yield "answer", now(Client(client.start, last, client.seen + shown))

    def _prune(self, state: State) -> Iterator[tuple[str, State]]:
        present = state.present(1)
        if not state.prunings or len(present) < 2:
            return
        old = present[:-1]
        if any(IDLE < number < present[-1] for number in state.writers):
            return
        if any(
            process.voiding
            and process.position is not None
            and any(gap.start <= old[-1] for gap in process.position.gaps)
            for process in state.processes
        ):
            return
        pruned = state._replace(prunings=state.prunings - 1)
        for number in old:
            what = state.ids[number - 1]
            pruned = pruned.becoming(number, PRUNED if what == COMMITTED else PRUNED_VOID)
        yield "prune", pruned


def read(state: State, known: Position | None) -> Position:
    """Return what `Horizon._read` makes of the table."""
    return _read(tuple(state.present(1)), known)


@cache
def _read(present: tuple[int, ...], known: Position | None) -> Position:
    if known is not None:
        ids = [number for number in present if number >= known.settled_id]
        if not known.settled_id or known.settled_id in ids[:1]:
            return known.after(ids, 0.0, float("inf"))
    return Position(present[0] if present else 0).after(present[1:], 0.0, float("inf"))


def violation(state: State) -> str | None:
    """Return what must never be and is, None where all is well."""
    for client in state.clients:
        wrong = _violation(state.ids, client.start, client.last, client.seen)
        if wrong is not None:
            return wrong
    return None


@cache
def _violation(
    ids: tuple[str, ...], start: int | None, last: int, seen: tuple[int, ...]
) -> str | None:
    if start is None:
        return None
    if list(seen) != sorted(set(seen)):
        return f"a client was shown {seen}"
    for number, what in enumerate(ids[:last], 1):
        if what in _OPEN:
            return f"id {number} may still commit, and a client is at {last}"
        if what in (COMMITTED, PRUNED) and start < number and number not in seen:
            return f"a client at {last} has not seen {number}"
    return None


@dataclass(frozen=True)
class Exploration:
    """What was found.

    :ivar states: how many there are.
    :ivar violation: the first that was found, None for none.
    :ivar path: the steps that lead there.
    """

    states: int
    violation: str | None = None
    path: tuple[str, ...] = ()


def explore(protocol: Protocol, first: State) -> Exploration:
    """Visit every state that can be reached, the nearest first; stop at a violation."""
    for known in (_ordered, _violation):
        known.cache_clear()
    start = first.canonical()
    came_from: dict[State, tuple[State, str] | None] = {start: None}
    waiting = [start]
    while waiting:
        following = []
        for state in waiting:
            for name, after in protocol.steps(state):
                after = after.canonical()
                if after in came_from:
                    continue
                came_from[after] = (state, name)
                wrong = violation(after)
                if wrong is not None:
                    return Exploration(len(came_from), wrong, _path(came_from, after))
                following.append(after)
        assert len(came_from) < 5_000_000
        waiting = following
    return Exploration(len(came_from))


def _path(came_from: dict[State, tuple[State, str] | None], state: State) -> tuple[str, ...]:
    names = []
    while (step := came_from[state]) is not None:
        state, name = step
        names.append(name)
    return tuple(reversed(names))


def beginning(
    writers: int, readers: int, *, records: int = 1, prunings: int = 0, restarts: int = 0
) -> State:
    """Return the state in which nobody has done anything.

    :param records: how many there are from before.
    """
    return State(
        ids=(COMMITTED,) * records,
        writers=(IDLE,) * writers,
        processes=(Process(),) * readers,
        clients=(Client(),) * readers,
        prunings=prunings,
        restarts=restarts,
    )


def main() -> None:
    """Explore more than the tests have time for."""
    for protocol, first in (
        (Protocol(ids=5), beginning(writers=3, readers=2)),
        (Protocol(ids=4), beginning(writers=2, readers=2, prunings=2, restarts=2)),
        (Protocol(ids=4), beginning(writers=3, readers=2, prunings=1, restarts=1)),
    ):
        explored = explore(protocol, first)
        sys.stdout.write(
            f"{len(first.writers)} writers, {len(first.processes)} readers, {protocol.ids} ids, "
            f"{first.prunings} prunings, {first.restarts} restarts: {explored}\n"
        )


if __name__ == "__main__":
    main()
