"""A bounded number of requests at the same time."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from compute_agent import errors

T = TypeVar("T")


class RequestPool:
    """Runs independent requests on at most `connections` threads.

    The threads belong to this object; `close` ends them, and nothing is asked for afterwards.
    One task alone runs in the caller's thread.
    """

    def __init__(self, connections: int = 4) -> None:
        self._connections = max(1, connections)
        # made at once, as several passes may be the first; its threads start when there is work
        self._pool = ThreadPoolExecutor(self._connections, "placement")

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def outcomes(
        self,
        tasks: Sequence[Callable[[], T]],
        ends_all: Callable[[errors.ComputeAgentError], bool] = lambda _error: False,
    ) -> list[T | errors.ComputeAgentError]:
        """Return what each task returned or raised, in the order of the tasks.

        :param ends_all: whether after this error nothing further is worth starting; it is then
            raised once what already runs has ended.
        """
        stop_errors: list[errors.ComputeAgentError] = []

        def run(task: Callable[[], T]) -> T | errors.ComputeAgentError:
            if stop_errors:
                return stop_errors[0]
            try:
                return task()
            except errors.ComputeAgentError as exc:
                if ends_all(exc):
                    stop_errors.append(exc)
                return exc

        if len(tasks) < 2 or self._connections == 1:
            results = [run(task) for task in tasks]
        else:
            # Each task gets its own copy of the context: request ids and counts go along.
            futures = [
                self._pool.submit(contextvars.copy_context().run, run, task) for task in tasks
            ]
            results = [future.result() for future in futures]
        if stop_errors:
            raise stop_errors[0]
        return results

    def results(self, tasks: Sequence[Callable[[], T]]) -> list[T]:
        """Return what each task returned; raise the first error, and start nothing after it."""
        outcomes = self.outcomes(tasks, lambda _error: True)
        return [result for result in outcomes if not isinstance(result, errors.ComputeAgentError)]
