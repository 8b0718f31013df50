"""Three requests at once, each stopped where it hurts, on one database.

Every session is the whole application in process with connections of its own. A stop is a place
in the statements that a request sends to the database; its COMMIT counts as one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event

from placement_server.store.connection.options import StoreOptions
from placement_server.store.store import Store
from tests.functional.api.wsgi_client import Answer, Client
from tests.integration.store.interleaving import waiting_sessions
from tests.property.api_model.apis import api_of

Scene = Mapping[str, str]
Action = Callable[[Client, Scene], Answer]
_DEADLINE = 40.0


class Session:
    """One client of one application. `stop_at` counts statements from 0; None: never."""

    def __init__(self, url: str) -> None:
        self.store = Store.open(url, options=StoreOptions(sqlite_synchronous=False))
        self.client = api_of(self.store)
        self.statements = 0
        self._stop_at: int | None = None
        self._stop_at_commit = False
        self._stopped = threading.Event()
        self._go = threading.Event()
        self._running: Future[Answer] | None = None
        event.listen(self.store.engine, "before_cursor_execute", self._on_statement)
        event.listen(self.store.engine, "commit", self._on_commit)

    def close(self) -> None:
        self.store.close()

    def _on_statement(self, *_: Any) -> None:
        self._step(self.statements == self._stop_at)

    def _on_commit(self, _: sa.Connection) -> None:
        self._step(self._stop_at_commit or self.statements == self._stop_at)

    def _step(self, stop: bool) -> None:
        self.statements += 1
        if stop and not self._go.is_set():
            self._stopped.set()
            assert self._go.wait(_DEADLINE), "nobody told the stopped request to go on"

    def perform(
        self,
        pool: ThreadPoolExecutor,
        action: Action,
        scene: Scene,
        *,
        stop_at: int | None = None,
        stop_at_commit: bool = False,
    ) -> None:
        self.statements = 0
        self._stop_at, self._stop_at_commit = stop_at, stop_at_commit
        self._stopped.clear()
        self._go.clear()
        self._running = pool.submit(action, self.client, scene)

    def go_on(self) -> None:
        """From its stop to the end, whatever comes."""
        self._go.set()
        self._stopped.clear()

    @property
    def is_on_its_way(self) -> bool:
        """It has neither ended nor come to its stop."""
        assert self._running is not None
        return not (self._running.done() or self._stopped.is_set())

    def status(self) -> int:
        assert self._running is not None
        return self._running.result(_DEADLINE).status


class Sessions:
    """Three of them, and a connection that sees who waits for a lock."""

    def __init__(self, url: str) -> None:
        with ExitStack() as stack:
            self.all = [Session(url) for _ in range(3)]
            for session in self.all:
                stack.callback(session.close)
            self._watcher = sa.create_engine(url, isolation_level="AUTOCOMMIT")
            stack.callback(self._watcher.dispose)
            self.close = stack.pop_all().close
        self.family = self._watcher.dialect.name

    def one_after_the_other(
        self, actions: Sequence[Action], order: Sequence[int], scene: Scene
    ) -> tuple[int, ...]:
        """The statuses by action, performed in `order`."""
        client = self.all[0].client
        statuses = {number: actions[number](client, scene).status for number in order}
        return tuple(statuses[number] for number in range(len(actions)))

    def statements_of(self, action: Action, scene: Scene) -> int:
        session = self.all[0]
        with ThreadPoolExecutor(1) as pool:
            session.perform(pool, action, scene)
            session.status()
        return session.statements

    def all_at_once(
        self, actions: Sequence[Action], scene: Scene, stop_at: int, *, first_goes_first: bool
    ) -> tuple[int, ...]:
        """The first is stopped at `stop_at`, the second before its COMMIT; then comes the third.

        When nobody moves any more, the stopped ones go on, one and then the other.
        """
        first, second, third = self.all
        with ThreadPoolExecutor(3) as pool:
            try:
                first.perform(pool, actions[0], scene, stop_at=stop_at)
                self._settle(first)
                second.perform(pool, actions[1], scene, stop_at_commit=True)
                self._settle(first, second)
                third.perform(pool, actions[2], scene)
                self._settle(first, second, third)
                order = (first, second) if first_goes_first else (second, first)
                order[0].go_on()
                self._settle(first, second, third)
            finally:
                # whatever happened, nobody is left waiting
                for session in self.all:
                    session.go_on()
            return first.status(), second.status(), third.status()

    def _settle(self, *sessions: Session) -> None:
        """Wait until each has ended, has come to its stop, or waits for another."""
        deadline = time.monotonic() + _DEADLINE
        while True:
            under_way = [session for session in sessions if session.is_on_its_way]
            if not under_way or self._all_wait(under_way):
                return
            assert time.monotonic() < deadline, "the requests do not get on"
            time.sleep(0.002)

    def _all_wait(self, under_way: Sequence[Session]) -> bool:
        if self.family == "sqlite":
            # whoever has begun asked for the one write transaction that there is
            return all(session.statements for session in under_way)
        return waiting_sessions(self._watcher) >= len(under_way)
