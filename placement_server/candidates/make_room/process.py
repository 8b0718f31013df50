"""Processes in which plans are searched for, beside the worker that is asked.

A search computes for a second and more. All threads of a worker share one interpreter, so beside it
each other request would wait. A process of its own has its own interpreter, a connection to the
database and an index. It begins with the first question, and ends when none came for a while.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import traceback
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from placement_server.candidates.errors import OutOfTime, SearchProcessEnded, TooManyHeavySearches
from placement_server.candidates.index.follower import IndexFollower
from placement_server.candidates.limits import Deadline, SearchEffort, SearchMemory
from placement_server.candidates.make_room.question import Body, Question, answer
from placement_server.store.connection.options import StoreOptions
from placement_server.store.engine import is_in_memory
from placement_server.store.store import Store

# Without a question for this long a process ends.
_IDLE_SECONDS: Final = 60.0
# What an answer may take beyond the deadline of its search.
_GRACE_SECONDS: Final = 5.0


class _Task(NamedTuple):
    """All that a process has to know for an answer.

    :ivar memory: what the search may hold, `SearchMemory.per_search` and `in_all`.
    """

    url: str
    options: StoreOptions
    question: Question
    deadline: Deadline
    memory: tuple[int, int] | None


class RoomProcesses:
    """The processes of one worker, which answer questions for room. Thread safe.

    :param seconds: after which a search gives up.
    :param most: how many there are at a time.
    """

    def __init__(
        self,
        store: Store,
        follower: IndexFollower,
        seconds: float,
        memory: SearchMemory | None,
        most: int,
    ) -> None:
        self._store, self._follower = store, follower
        self._seconds, self._memory, self._most = seconds, memory, most
        self._places = threading.Semaphore(most)
        self._idle_connections: list[Connection] = []

    def answer(self, question: Question) -> Body:
        """Return the body of the answer; see `placement_server.candidates.make_room.question`."""
        deadline = Deadline(self._seconds)
        if not self._places.acquire(timeout=self._seconds):
            raise TooManyHeavySearches(self._most)
        try:
            if is_in_memory(self._store.url):
                # which no other process can read
                memory, effort = self._memory, SearchEffort()
                return answer(self._store, self._follower, question, deadline, memory, effort)
            options = replace(
                self._store.options, sync_on_startup=False, connect_tries=1, max_pool_size=1
            )
            limits = self._memory and (self._memory.per_search, self._memory.in_all)
            return self._ask(_Task(self._store.url, options, question, deadline, limits or None))
        finally:
            self._places.release()

    def _ask(self, task: _Task) -> Body:
        while True:
            try:
                connection = self._idle_connections.pop()
            except IndexError:
                return self._ask_through(_begun_process(), task)
            with suppress(SearchProcessEnded):  # as it was idle for long
                return self._ask_through(connection, task)

    def _ask_through(self, connection: Connection, task: _Task) -> Body:
        try:
            connection.send(task)
            if not connection.poll(max(0.0, task.deadline.left()) + _GRACE_SECONDS):
                # it ends when it looks for its parent, or writes
                connection.close()
                raise OutOfTime(task.deadline.seconds, 0)
            reply = connection.recv()
        except (EOFError, OSError):
            connection.close()
            raise SearchProcessEnded from None
        self._idle_connections.append(connection)
        if isinstance(reply, _Failure):
            raise reply.error()
        body: Body = reply
        return body


class _Failure(NamedTuple):
    """An error on its way to the worker; its class may want other arguments than it keeps."""

    kind: type[Exception]
    arguments: tuple[Any, ...]
    fields: dict[str, Any]

    def error(self) -> Exception:
        """Return the error again."""
        error = self.kind.__new__(self.kind, *self.arguments)
        vars(error).update(self.fields)
        return error


def _begun_process() -> Connection:
    """Begin a process; return the connection to it."""
    mine, its = Pipe()
    with its:
        program = f"from {__name__} import main; main({its.fileno()})"
        # A server that embeds Python has its own path under `sys.executable`.
        is_python = os.path.basename(sys.executable).startswith("python")
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        python = sys.executable if is_python else f"{sys.exec_prefix}/bin/python{version}"
        command = [python, "-c", program]
        # the metrics of the workers are not its own
        environment = {k: v for k, v in os.environ.items() if k != "PROMETHEUS_MULTIPROC_DIR"}
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, pass_fds=[its.fileno()], env=environment
        )
    threading.Thread(target=process.wait, daemon=True).start()
    return mine


class _ChildEffort(SearchEffort):
    """The effort of a search that ends with the worker, which nobody else would end."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._connection = connection

    def look(self, seconds_left: float) -> None:  # noqa: ARG002 - as in the class above
        """End this process if the worker has gone, or waits no longer."""
        if self._connection.poll():
            sys.exit()


def main(descriptor: int) -> None:
    """Answer questions until none came for a while, or the worker has gone."""
    # what ends the service ends the worker, and with it this process
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    connection, store = Connection(descriptor), None
    while connection.poll(_IDLE_SECONDS):
        reply: Body | _Failure
        try:
            task: _Task = connection.recv()
        except EOFError:
            return
        try:
            if store is None:
                store = Store.open(task.url, options=task.options)
                follower = IndexFollower(store)
            memory = task.memory and SearchMemory(*task.memory)
            effort = _ChildEffort(connection)
            reply = answer(store, follower, task.question, task.deadline, memory or None, effort)
        except Exception as error:  # noqa: BLE001 - raised in the worker
            # for its log; a traceback does not go through a connection
            error.add_note(traceback.format_exc())
            reply = _Failure(type(error), error.args, vars(error))
        try:
            connection.send(reply)
        except OSError:
            # the worker has gone, or waits no longer
            return
