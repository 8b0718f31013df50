"""The modules of the project that a piece of work runs through, counted by a tracer."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

REPOSITORY = Path(__file__).parents[2]


class ExecutedModules:
    """The modules in which a function was called.

    A reader who follows the work has to open each of them.
    """

    def __init__(self) -> None:
        self._files: set[str] = set()

    def of(self, package: str) -> list[str]:
        """Return those of a package, as paths below the repository."""
        paths = [Path(file) for file in self._files]
        own = [path.relative_to(REPOSITORY) for path in paths if path.is_relative_to(REPOSITORY)]
        return sorted(str(path) for path in own if path.parts[0] == package)

    def record(self, frame: FrameType, event: str, _argument: Any) -> None:
        """Record a call, as `sys.setprofile` asks."""
        if event == "call":
            self._files.add(frame.f_code.co_filename)


@contextmanager
def executed_modules() -> Iterator[ExecutedModules]:
    """Record what this thread calls, and those that begin inside."""
    modules = ExecutedModules()
    before = sys.getprofile(), threading.getprofile()
    threading.setprofile(modules.record)
    sys.setprofile(modules.record)
    try:
        yield modules
    finally:
        sys.setprofile(before[0])
        threading.setprofile(before[1])  # type: ignore[arg-type]  # None ends it
