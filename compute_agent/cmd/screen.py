"""Pictures that a command draws again and again until q or Ctrl-C, and bars of its progress."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from compute_agent import errors
from compute_agent.programs.printable import terminal

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

T = TypeVar("T")

_CLEAR: Final = "\033[2J"
_HIDE_CURSOR, _SHOW_CURSOR = "\033[?25l", "\033[?25h"
_CUT_LINES, _WRAP_LINES = "\033[?7l", "\033[?7h"
_HOME, _TO_END_OF_LINE, _TO_END_OF_SCREEN = "\033[H", "\033[K", "\033[J"
_USUAL_LINES: Final = 24


class Screen:
    """Draws in place on a terminal; elsewhere one picture below the other.

    In its block a terminal has no line editing and no echo; it has them back after the block, after
    SIGTERM, and as long as Ctrl-Z stops the program. Ctrl-C ends the block, as an end that is
    expected; so does a reader of the pictures that leaves.
    """

    def __init__(self) -> None:
        self.is_terminal = sys.stdout.isatty()
        # the keys of a pipeline are for its last program, such as a pager
        self._reads_keys = self.is_terminal and sys.stdin.isatty()
        self._settings: Any = None
        self._handlers: dict[int, Any] = {}
        self._notices: Sequence[str] = ()
        self._reader_left = False

    def __enter__(self) -> Screen:
        if self.is_terminal:
            for number in (signal.SIGTERM, signal.SIGTSTP):
                self._handlers[number] = signal.signal(number, self._step_aside)
            self._take_terminal()
            terminal(sys.stdout).write(_CLEAR)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: object,
    ) -> bool:
        if self.is_terminal:
            self._give_back_terminal()
            for number, handler in self._handlers.items():
                signal.signal(number, handler)
        return kind is not None and issubclass(kind, KeyboardInterrupt)

    def _take_terminal(self) -> None:
        if self._reads_keys:
            import termios
            import tty

            self._settings = termios.tcgetattr(sys.stdin)
            tty.setcbreak(sys.stdin)
        _write_at_once(_HIDE_CURSOR + _CUT_LINES)

    def _give_back_terminal(self) -> None:
        if self._settings is not None:
            import termios

            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._settings)
        _write_at_once(_SHOW_CURSOR + _WRAP_LINES)

    def _step_aside(self, number: int, _frame: FrameType | None) -> None:
        """Let a signal do what it usually does, with the terminal as it was before the block."""
        self._give_back_terminal()
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
        # only a stopped program comes here, when it goes on
        signal.signal(number, self._step_aside)
        self._take_terminal()

    def show(self, lines: Sequence[str], notices: Sequence[str] = ()) -> None:
        """Draw a picture, below sentences about what keeps it from being complete or new.

        :param lines: none: the picture before is as new as it gets, and only notices are shown.
        """
        try:
            if self.is_terminal:
                self._draw([*notices, *lines])
            else:
                new_notices = (notice for notice in notices if notice not in self._notices)
                for text in [*new_notices, *lines]:
                    print(text)
            sys.stdout.flush()
        except BrokenPipeError:
            self._reader_left = True
            # Python would complain again when it flushes at its end
            sys.stdout = None
        self._notices = notices

    def _draw(self, lines: Sequence[str]) -> None:
        # a serial line has no size
        height = max((os.get_terminal_size(sys.stdout.fileno()).lines or _USUAL_LINES) - 1, 1)
        if len(lines) > height:
            shown_lines = lines[: height - 1]
            lines = [*shown_lines, f"... {len(lines) - len(shown_lines)} more lines"]
        screen_text = "".join(f"{line}{_TO_END_OF_LINE}\n" for line in lines)
        terminal(sys.stdout).write(_HOME + screen_text + _TO_END_OF_SCREEN)

    def is_left(self, seconds: float) -> bool:
        """Wait so many seconds; return at once with True when q is pressed or the reader left."""
        end = time.monotonic() + seconds
        while not self._reader_left and (remaining_seconds := end - time.monotonic()) > 0:
            if not self._reads_keys:
                time.sleep(remaining_seconds)
            elif select.select([sys.stdin], [], [], remaining_seconds)[0]:
                # a text stream would keep to itself what it has read beyond the first key
                keys = os.read(sys.stdin.fileno(), 64)
                if b"q" in keys or not keys:
                    return True
        return self._reader_left


def looks(
    look: Callable[[], T],
    is_left: Callable[[float], bool],
    seconds: float,
    say: Callable[[str], None],
) -> Iterator[T]:
    """Yield what is there, again and again, until it is left; placement may be away in between.

    :param is_left: waits so many seconds, and returns whether nothing more is to be yielded.
    :param say: told of the beginning and the end of each time that placement is away.
    :raises PlacementUnauthorized: placement refuses the credentials, which no waiting mends.
    """
    is_away = False
    while True:
        try:
            seen = look()
        except errors.PlacementUnauthorized:
            raise
        except errors.PlacementError as error:
            if not is_away:
                say(f"{now()}  Placement cannot be read, and is asked again. {error}")
            is_away = True
        else:
            if is_away:
                say(f"{now()}  Placement answers again.")
            is_away = False
            yield seen
        if is_left(seconds):
            return


def now() -> str:
    """Return the time of day."""
    return time.strftime("%H:%M:%S")


def _write_at_once(text: str) -> None:
    """Write to the terminal past the stream, which a signal may have interrupted in a write."""
    os.write(sys.stdout.fileno(), text.encode())


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
        for elapsed_seconds in range(int(seconds)):
            self.update("waiting before the second look", elapsed_seconds, int(seconds))
            time.sleep(1)
        time.sleep(seconds - int(seconds))


@contextmanager
def progress_bars() -> Iterator[ProgressBars]:
    """Yield bars that disappear at the end."""
    from rich.console import Console
    from rich.progress import Progress

    is_watched = sys.stderr.isatty()
    console = Console(file=terminal(sys.stderr), quiet=not is_watched)
    with Progress(console=console, transient=True, disable=not is_watched) as progress:
        yield ProgressBars(progress)
