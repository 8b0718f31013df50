"""Sessions at once, stopped where it hurts, compared with one after the other.

Of two, the first is stopped before each of its statements in turn (its COMMIT too); then the second
runs to its end, or until the database makes it wait; then the first goes on. Of three, the second
is stopped before its COMMIT, and then comes the third. Whatever happens must be what would have
happened had they run one after the other, in one order or another.
"""

from __future__ import annotations

import functools
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, cast

import sqlalchemy as sa
from sqlalchemy import event

from placement_server.store.errors import StoreError
from placement_server.store.store import Store
from placement_server.store.transaction import WriteTransaction
from tests.integration.store.copied_scenes import OriginalScene, Scene

Action = Callable[[Store, Scene], object]
MakeScene = Callable[[Store], Scene]
DEADLINE = 30.0
COMMIT: Final = -1
"""The number of no statement, but the place before the COMMIT."""
NEVER: Final = -2


def writing(function: Callable[..., object], *roles: str, **arguments: object) -> Action:
    """A write of the store about what has these roles in a scene; other words are themselves."""
    return lambda store, scene: store.write(
        function, *(scene.get(role, role) for role in roles), **arguments
    )


@dataclass
class Stop:
    """Stops one session once, before its statement number `at`.

    :ivar reached: it stands still: stopped, or at its end.
    :ivar seen: statements so far, with the COMMIT.
    """

    at: int
    reached: threading.Event = field(default_factory=threading.Event)
    go: threading.Event = field(default_factory=threading.Event)
    seen: int = 0

    def step(self, number: int | None = None) -> None:
        number, self.seen = self.seen if number is None else number, self.seen + 1
        if number == self.at and not self.go.is_set():
            self.reached.set()
            assert self.go.wait(DEADLINE), "nobody told the stopped session to go on"

    def go_on(self) -> None:
        self.reached.clear()
        self.go.set()


@contextmanager
def listening(store: Store, name: str, listener: Callable[..., Any]) -> Iterator[None]:
    """Call a listener at each event of a name that writes of the store raise."""
    event.listen(store.engine, name, listener)
    try:
        yield
    finally:
        event.remove(store.engine, name, listener)


@contextmanager
def stopping(store: Store, stop: Stop) -> Iterator[None]:
    def on_statement(*_: Any) -> None:
        stop.step()

    def on_commit(_: sa.Connection) -> None:
        stop.step(COMMIT if stop.at == COMMIT else None)

    with (
        listening(store, "before_cursor_execute", on_statement),
        listening(store, "commit", on_commit),
    ):
        yield


@contextmanager
def deadlocks_of(stores: Sequence[Store]) -> Iterator[list[str]]:
    """The deadlocks that these stores were told of."""
    told: list[str] = []

    def on_error(context: Any) -> None:
        cause = context.original_exception
        if getattr(cause, "sqlstate", None) == "40P01" or (cause.args or ("",))[0] == 1213:
            told.append(f"{context.statement}: {cause}")

    with ExitStack() as stack:
        for store in stores:
            stack.enter_context(listening(store, "handle_error", on_error))
        yield told


def outcome(action: Action, store: Store, scene: Scene) -> str:
    try:
        action(store, scene)
    except StoreError as error:
        return type(error).__name__
    return "done"


def waiting_sessions(watcher: sa.Engine) -> int:
    """How many sessions of a database wait for locks. Not on SQLite, where locks have no queue.

    MySQL and MariaDB count the whole server: a wait of somebody else only ends ours too early.
    The table of their transactions would know better, but is not made anew while two ask for it
    in turns.
    """
    if watcher.dialect.name == "postgresql":
        query = (
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
    else:
        query = (
            "SELECT CAST(variable_value AS SIGNED) FROM information_schema.global_status "
            "WHERE variable_name = 'INNODB_ROW_LOCK_CURRENT_WAITS'"
        )
    with watcher.connect() as connection:
        return int(connection.execute(sa.text(query)).scalar_one())


class _OneTransaction:
    """A store all of whose reads and writes are part of one transaction, and cheap."""

    def __init__(self, tx: object) -> None:
        self._tx = tx

    def read(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return function(self._tx, *args, **kwargs)

    write = read


@dataclass
class RunningAction:
    """An action that was begun in a session."""

    stop: Stop
    outcome: Future[str]

    def __post_init__(self) -> None:
        self.outcome.add_done_callback(lambda _: self.stop.reached.set())

    @property
    def is_on_its_way(self) -> bool:
        """Whether it has neither ended nor come to its stop."""
        return not (self.stop.reached.is_set() or self.outcome.done())


class Sessions:
    """Stores over one database, and a further connection that sees who waits for a lock."""

    def __init__(self, *stores: Store) -> None:
        self.stores = stores
        self.first, self.second, *_ = stores
        self._watcher = sa.create_engine(self.first.engine.url, isolation_level="AUTOCOMMIT")
        self._originals: dict[MakeScene, OriginalScene] = {}
        self._unused_scenes: dict[MakeScene, list[Scene]] = {}
        self.family = self.first.engine.dialect.name

    def close(self) -> None:
        self._watcher.dispose()

    def new_scene(self, make_scene: MakeScene, ahead: int) -> Scene:
        """A scene to which nothing happened yet: the one that was made, or a copy of it.

        :param ahead: how many copies to make at once.
        """
        unused = self._unused_scenes.setdefault(make_scene, [])
        if make_scene not in self._originals:
            self._originals[make_scene] = self.first.write(_new_original, make_scene)
            unused.append(dict(self._originals[make_scene].scene))
        elif not unused:
            unused += self.first.write(self._originals[make_scene].copy, ahead)
        return unused.pop()

    def run_together(
        self,
        actions: Sequence[Action],
        scene: Scene,
        stops: Sequence[int],
        meanwhile: Callable[[], object] = lambda: None,
        *,
        backwards: bool = False,
    ) -> tuple[str, ...] | None:
        """The outcomes; None when the first has no statement of its number.

        Each is begun when those before it have ended, are stopped, or wait for one another. When
        nobody moves any more, the stopped ones go on in turn.

        :param stops: the statement before which each action is stopped.
        :param meanwhile: called when all have been begun, and before any goes on.
        :param backwards: the last that is stopped goes on first.
        """
        runs: list[RunningAction] = []
        with ExitStack() as ends, ThreadPoolExecutor(len(actions)) as pool:
            try:
                for action, store, at in zip(actions, self.stores, stops, strict=False):
                    stop = Stop(at)
                    ends.enter_context(stopping(store, stop))
                    runs.append(RunningAction(stop, pool.submit(outcome, action, store, scene)))
                    self._settle(runs)
                    if runs[0].outcome.done():
                        runs[0].outcome.result()
                        return None
                meanwhile()
                for run in runs[::-1] if backwards else runs:
                    run.stop.go_on()
                    self._settle(runs)
            finally:
                # whatever happened, nobody is left waiting
                for run in runs:
                    run.stop.go_on()
            return tuple(run.outcome.result(DEADLINE) for run in runs)

    def await_lock(self, waiting: Future[Any]) -> None:
        """Return when a session waits for a lock, not on SQLite; `waiting` must not end."""
        self._settle([RunningAction(Stop(NEVER), waiting)])
        assert not waiting.done(), f"it waited for nothing: {waiting.exception()}"

    def _settle(self, runs: Sequence[RunningAction]) -> None:
        """Wait until each has ended, has come to its stop, or waits for another."""
        deadline = time.monotonic() + DEADLINE
        while on_their_way := [run for run in runs if run.is_on_its_way]:
            # mostly it ends at once, and who waits for a lock is a question that takes as long
            if not on_their_way[0].stop.reached.wait(0.005) and self._all_wait(on_their_way):
                return
            assert time.monotonic() < deadline, "the sessions do not get on"

    def _all_wait(self, on_their_way: Sequence[RunningAction]) -> bool:
        """Whether each of these waits for another."""
        if self.family == "sqlite":
            # they asked for the one write transaction there is
            return all(run.stop.seen for run in on_their_way)
        return waiting_sessions(self._watcher) >= len(on_their_way)


def _new_original(tx: WriteTransaction, make_scene: MakeScene) -> OriginalScene:
    return OriginalScene.read(tx, make_scene(cast("Store", _OneTransaction(tx))))


def check_both_orders(
    sessions: Sessions,
    make_scene: MakeScene,
    pair: tuple[Action, Action],
    look: Callable[[Store, Scene], object],
    meanwhile: Callable[[Scene], object] = lambda _: None,
    *,
    ahead: int = 4,
) -> None:
    """Interrupts each of the two in turn; a deadlock on the way fails too.

    There is one lock order: sessions wait for each other, and never in a circle. It fails with the
    place of the interruption when the outcome fits no serial order.

    `make_scene` and `look` take one transaction each.

    :param ahead: how many scenes to make at once; 1 where one of the two changes those of others.
    """
    with deadlocks_of(sessions.stores) as deadlocks:
        _check_interruptions(sessions, make_scene, pair, look, meanwhile, ahead)
        if sessions.family != "sqlite":
            # SQLite runs one write transaction after the other by itself: once is enough there
            _check_interruptions(sessions, make_scene, pair[::-1], look, meanwhile, ahead)
    assert deadlocks == []


def _check_interruptions(
    sessions: Sessions,
    make_scene: MakeScene,
    actions: tuple[Action, Action],
    look: Callable[[Store, Scene], object],
    meanwhile: Callable[[Scene], object],
    ahead: int,
) -> None:
    allowed = _outcomes_in_a_row(sessions, make_scene, actions, look, ahead)
    for at in itertools.count():
        scene = sessions.new_scene(make_scene, ahead)
        stops, look_on = (at, NEVER), functools.partial(meanwhile, scene)
        results = sessions.run_together(actions, scene, stops, look_on)
        if results is None:
            assert at > 0, "the first action has no statement"
            return
        got = (results, _seen(sessions, look, scene))
        assert got in allowed, f"stopped before statement {at}: {got}\nis none of {allowed}"


def check_three(
    sessions: Sessions,
    make_scene: MakeScene,
    actions: tuple[Action, Action, Action],
    look: Callable[[Store, Scene], object],
) -> None:
    """Interrupts the first in the middle and near its end, the second before its COMMIT."""
    allowed = _outcomes_in_a_row(sessions, make_scene, actions, look, 10)
    counted = Stop(NEVER)
    with stopping(sessions.first, counted):
        outcome(actions[0], sessions.first, sessions.new_scene(make_scene, 10))
    last = counted.seen - 1
    assert last > 2, "the first action has hardly a statement"
    with deadlocks_of(sessions.stores) as deadlocks:
        for number, at in enumerate(sorted({last // 2, last - 1, last})):
            scene, stops = sessions.new_scene(make_scene, 10), (at, COMMIT, NEVER)
            backwards = number % 2 == 1
            results = sessions.run_together(actions, scene, stops, backwards=backwards)
            got = (results, _seen(sessions, look, scene))
            assert got in allowed, f"stopped before statement {at} of {last}: {got}"
    assert deadlocks == []


def _outcomes_in_a_row(
    sessions: Sessions,
    make_scene: MakeScene,
    actions: Sequence[Action],
    look: Callable[[Store, Scene], object],
    ahead: int,
) -> list[tuple[tuple[str, ...], object]]:
    """The outcomes of the actions, and what is seen then, in each order."""
    found = []
    for order in itertools.permutations(range(len(actions))):
        scene = sessions.new_scene(make_scene, ahead)
        outcomes = {number: outcome(actions[number], sessions.first, scene) for number in order}
        statuses = tuple(outcomes[number] for number in range(len(actions)))
        found.append((statuses, _seen(sessions, look, scene)))
    return found


def _seen(sessions: Sessions, look: Callable[[Store, Scene], object], scene: Scene) -> object:
    return sessions.first.read(lambda tx: look(cast("Store", _OneTransaction(tx)), scene))
