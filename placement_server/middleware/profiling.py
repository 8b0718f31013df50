"""Profiles of single requests, for the search for slow code."""

from __future__ import annotations

import cProfile
import os
import re
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication

#: The directory to write to: an environment variable, because it is set for one run.
VARIABLE: Final = "OS_WSGI_PROFILER"

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]+")


class Profiling:
    """Write the profile of each request to a file of its own, for pstats.

    Profiled requests run one after the other: cProfile sees only one thread at a time.
    """

    def __init__(self, application: WSGIApplication, directory: str) -> None:
        self._application = application
        self._directory = Path(directory)
        self._turn = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        profile = cProfile.Profile()
        with self._turn:
            start = time.perf_counter()
            chunks: Iterable[bytes] = profile.runcall(self._application, environ, start_response)
            milliseconds = (time.perf_counter() - start) * 1000
        request = f"{environ['REQUEST_METHOD']}{environ.get('PATH_INFO', '')}"
        name = f"{_UNSAFE.sub('.', request)[:100]}.{milliseconds:06.0f}ms.{time.time_ns()}.prof"
        profile.dump_stats(self._directory / name)
        return chunks


def wrap(application: WSGIApplication) -> WSGIApplication:
    """Profile the application if the environment variable is set."""
    directory = os.environ.get(VARIABLE)
    return Profiling(application, directory) if directory else application
