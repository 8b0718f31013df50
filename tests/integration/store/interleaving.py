"""Two sessions in every order that matters, compared with one after the other.

`first` is stopped before each of its statements in turn (its COMMIT too); then `second` runs
to its end, or until the database makes it wait; then `first` goes on. Whatever happens must be
what would have happened had they run one after the other, in one order or the other.
"""

from __future__ import annotations

import functools
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy import event

from placement_server.store.errors import StoreError
from placement_server.store.store import Store
from placement_server.store.transaction import WriteTransaction
from tests.integration.store.copied_scenes import OriginalScene, Scene

Action = Callable[[Store, Scene], object]
MakeScene = Callable[[Store], Scene]
DEADLINE = 30.0


def writing(function: Callable[..., object], *roles: str, **arguments: object) -> Action:
    """A write of the store about what has these roles in a scene; other words are themselves."""
    return lambda store, scene: store.write(
        function, *(scene.get(role, role) for role in roles), **arguments
    )


@dataclass
class Stop:
    """Stops one session once, before its statement number `at`."""

    at: int
    reached: threading.Event = field(default_factory=threading.Event)
    go: threading.Event = field(default_factory=threading.Event)
    seen: int = 0

    def step(self) -> None:
        number, self.seen = self.seen, self.seen + 1
        if number == self.at:
            self.reached.set()
            assert self.go.wait(DEADLINE), "nobody told the stopped session to go on"


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

    with (
        listening(store, "before_cursor_execute", on_statement),
        listening(store, "commit", on_statement),
    ):
        yield


@contextmanager
def deadlocks_of(stores: list[Store]) -> Iterator[list[str]]:
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


class Sessions:
    """Two stores over one database, and a third connection that sees who waits for a lock."""

    def __init__(self, first: Store, second: Store) -> None:
        self.first = first
        self.second = second
        self._watcher = sa.create_engine(first.engine.url, isolation_level="AUTOCOMMIT")
        self._originals: dict[MakeScene, OriginalScene] = {}
        self._unused_scenes: dict[MakeScene, list[Scene]] = {}
        self.family = first.engine.dialect.name

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

    def run_interleaved(
        self,
        first: Action,
        second: Action,
        scene: Scene,
        at: int,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> tuple[str, str] | None:
        """The two outcomes; None when `first` has no statement number `at`.

        `meanwhile` is called when `second` has ended or waits, and `first` is still stopped.
        """
        stop = Stop(at)
        begun = threading.Event()
        with stopping(self.first, stop), ThreadPoolExecutor(2) as pool:
            one = pool.submit(outcome, first, self.first, scene)
            one.add_done_callback(lambda _: stop.reached.set())
            assert stop.reached.wait(DEADLINE), "the first session does not get on"
            if one.done():
                one.result()
                return None
            with listening(self.second, "before_cursor_execute", lambda *_: begun.set()):
                two = pool.submit(outcome, second, self.second, scene)
                self._await_end_or_lock(two, begun)
                try:
                    meanwhile()
                finally:
                    stop.go.set()
                return one.result(DEADLINE), two.result(DEADLINE)

    def await_lock(self, waiting: Future[Any]) -> None:
        """Return when a session waits for a lock, not on SQLite; `waiting` must not end."""
        self._await_end_or_lock(waiting, threading.Event())
        assert not waiting.done(), f"it waited for nothing: {waiting.exception()}"

    def _waits(self, begun: threading.Event) -> bool:
        """Whether the second session waits for the first."""
        if self.family == "sqlite":
            # it asked for the one write transaction there is
            return begun.is_set()
        return waiting_sessions(self._watcher) > 0

    def _await_end_or_lock(self, running: Future[Any], begun: threading.Event) -> None:
        deadline = time.monotonic() + DEADLINE
        # mostly it ends at once, and who waits for a lock is a question that takes as long
        while not wait([running], 0.005).done and not self._waits(begun):
            assert time.monotonic() < deadline, "neither session gets on"


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
    with deadlocks_of([sessions.first, sessions.second]) as deadlocks:
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
    def seen(scene: Scene) -> object:
        return sessions.first.read(lambda tx: look(cast("Store", _OneTransaction(tx)), scene))

    allowed = []
    for order in ((0, 1), (1, 0)):
        scene = sessions.new_scene(make_scene, ahead)
        outcomes = {number: outcome(actions[number], sessions.first, scene) for number in order}
        allowed.append(((outcomes[0], outcomes[1]), seen(scene)))
    for at in itertools.count():
        scene = sessions.new_scene(make_scene, ahead)
        results = sessions.run_interleaved(*actions, scene, at, functools.partial(meanwhile, scene))
        if results is None:
            assert at > 0, "the first action has no statement"
            return
        got = (results, seen(scene))
        assert got in allowed, f"stopped before statement {at}: {got}\nis none of {allowed}"
