"""Two sessions in every order that matters, compared with one after the other.

``first`` is stopped before each of its statements in turn (its COMMIT too); then ``second`` runs
to its end, or until the database makes it wait; then ``first`` goes on. Whatever happens must be
what would have happened had they run one after the other, in one order or the other.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy import event

from placement_server.store.errors import StoreError
from placement_server.store.store import Store

Scene = dict[str, str]
Action = Callable[[Store, Scene], object]
DEADLINE = 30.0


@dataclass
class Stop:
    """Stops one session once, before its statement number ``at``."""

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
def stopping(store: Store, stop: Stop) -> Iterator[None]:
    def on_statement(*_: Any) -> None:
        stop.step()

    def on_commit(_: sa.Connection) -> None:
        stop.step()

    event.listen(store.engine, "before_cursor_execute", on_statement)
    event.listen(store.engine, "commit", on_commit)
    try:
        yield
    finally:
        event.remove(store.engine, "before_cursor_execute", on_statement)
        event.remove(store.engine, "commit", on_commit)


@contextmanager
def deadlocks_of(stores: list[Store]) -> Iterator[list[str]]:
    """The deadlocks that these stores were told of."""
    told: list[str] = []

    def on_error(context: Any) -> None:
        cause = context.original_exception
        if getattr(cause, "sqlstate", None) == "40P01" or (cause.args or ("",))[0] == 1213:
            told.append(f"{context.statement}: {cause}")

    for store in stores:
        event.listen(store.engine, "handle_error", on_error)
    try:
        yield told
    finally:
        for store in stores:
            event.remove(store.engine, "handle_error", on_error)


def outcome(action: Action, store: Store, scene: Scene) -> str:
    try:
        action(store, scene)
    except StoreError as error:
        return type(error).__name__
    return "done"


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
        self.family = first.engine.dialect.name

    def close(self) -> None:
        self._watcher.dispose()

    def run_interleaved(
        self,
        first: Action,
        second: Action,
        scene: Scene,
        at: int,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> tuple[str, str] | None:
        """The two outcomes; None when ``first`` has no statement number ``at``.

        ``meanwhile`` is called when ``second`` has ended or waits, and ``first`` is still stopped.
        """
        stop = Stop(at)
        begun = threading.Event()
        with stopping(self.first, stop), ThreadPoolExecutor(2) as pool:
            one = pool.submit(outcome, first, self.first, scene)
            if not self._wait(lambda: stop.reached.is_set() or one.done()) or one.done():
                one.result()
                return None
            with self._noting_begin(begun):
                two = pool.submit(outcome, second, self.second, scene)
                self._wait(lambda: two.done() or self._waits(begun))
                try:
                    meanwhile()
                finally:
                    stop.go.set()
                return one.result(DEADLINE), _result(two)

    def await_lock(self, waiting: Future[Any]) -> None:
        """Return when a session waits for a lock, not on SQLite; ``waiting`` must not end."""
        self._wait(lambda: waiting.done() or self._waits(threading.Event()))
        assert not waiting.done(), f"it waited for nothing: {waiting.exception()}"

    @contextmanager
    def _noting_begin(self, begun: threading.Event) -> Iterator[None]:
        def on_statement(*_: Any) -> None:
            begun.set()

        event.listen(self.second.engine, "before_cursor_execute", on_statement)
        try:
            yield
        finally:
            event.remove(self.second.engine, "before_cursor_execute", on_statement)

    def _waits(self, begun: threading.Event) -> bool:
        """Whether the second session waits for the first."""
        if self.family == "sqlite":
            # it asked for the one write transaction there is
            return begun.is_set()
        if self.family == "postgresql":
            query = (
                "SELECT count(*) FROM pg_stat_activity "
                "WHERE datname = current_database() AND wait_event_type = 'Lock'"
            )
        else:
            # counts the whole server; a wait of somebody else only ends ours too early
            query = (
                "SELECT variable_value > 0 FROM information_schema.global_status "
                "WHERE variable_name = 'INNODB_ROW_LOCK_CURRENT_WAITS'"
            )
        with self._watcher.connect() as connection:
            return bool(connection.scalar(sa.text(query)))

    @staticmethod
    def _wait(condition: Callable[[], bool]) -> bool:
        deadline = time.monotonic() + DEADLINE
        while not condition():
            assert time.monotonic() < deadline, "neither session gets on"
            time.sleep(0.002)
        return True


def _result(two: Future[str]) -> str:
    return two.result(DEADLINE)


def check_serializable(
    sessions: Sessions,
    make_scene: Callable[[Store], Scene],
    first: Action,
    second: Action,
    look: Callable[[Store, Scene], object],
    meanwhile: Callable[[], object] = lambda: None,
) -> None:
    """Fails with the place of the interruption when the outcome fits no serial order.

    ``make_scene`` and ``look`` take one transaction each.
    """
    allowed = []

    def new_scene() -> Scene:
        return sessions.first.write(lambda tx: make_scene(cast("Store", _OneTransaction(tx))))

    def seen(scene: Scene) -> object:
        return sessions.first.read(lambda tx: look(cast("Store", _OneTransaction(tx)), scene))

    for order in ("first, second", "second, first"):
        scene = new_scene()
        actions = (first, second) if order.startswith("first") else (second, first)
        results = [outcome(action, sessions.first, scene) for action in actions]
        if not order.startswith("first"):
            results.reverse()
        allowed.append((tuple(results), seen(scene)))
    for at in itertools.count():
        scene = new_scene()
        results = sessions.run_interleaved(first, second, scene, at, meanwhile)
        if results is None:
            assert at > 0, "the first action has no statement"
            return
        got = (results, seen(scene))
        assert got in allowed, f"stopped before statement {at}: {got}\nis none of {allowed}"


def check_both_orders(
    sessions: Sessions,
    make_scene: Callable[[Store], Scene],
    pair: tuple[Action, Action],
    look: Callable[[Store, Scene], object],
    meanwhile: Callable[[], object] = lambda: None,
) -> None:
    """Interrupts each of the two in turn; a deadlock on the way fails too."""
    first, second = pair
    with deadlocks_of([sessions.first, sessions.second]) as deadlocks:
        check_serializable(sessions, make_scene, first, second, look, meanwhile)
        if sessions.family != "sqlite":
            # SQLite runs one write transaction after the other by itself: once is enough there
            check_serializable(sessions, make_scene, second, first, look, meanwhile)
    assert deadlocks == []
