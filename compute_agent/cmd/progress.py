"""Progress of long commands on stderr, where that is a terminal."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from compute_agent.programs.printable import terminal

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class ProgressBars:
    """One bar for each kind of work. Silent where stderr is not a terminal."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._bars: dict[str, TaskID] = {}

    def update(self, what: str, done_count: int, total: int) -> None:
        """Show how much of a task is done."""
        if what not in self._bars:
            self._bars[what] = self._progress.add_task(what)
        self._progress.update(self._bars[what], completed=done_count, total=total)

    def show(self, text: str) -> None:
        """Show a task of unknown length."""
        self._progress.console.print(f"{text} ...", highlight=False)

    def wait(self, seconds: float) -> None:
        """Wait, and show the remaining time."""
        what = "waiting before the second look"
        for elapsed_seconds in range(int(seconds)):
            self.update(what, elapsed_seconds, int(seconds))
            threading.Event().wait(1.0)
        threading.Event().wait(seconds - int(seconds))


@contextmanager
def progress_bars() -> Iterator[ProgressBars]:
    """Yield bars that disappear at the end."""
    from rich.console import Console
    from rich.progress import Progress

    is_watched = sys.stderr.isatty()
    console = Console(file=terminal(sys.stderr), quiet=not is_watched)
    with Progress(console=console, transient=True, disable=not is_watched) as progress:
        yield ProgressBars(progress)
