"""Pictures that a command draws again and again, until q or Ctrl-C."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

_CLEAR: Final = "\033[2J"
_HIDE_CURSOR, _SHOW_CURSOR = "\033[?25l", "\033[?25h"
_CUT_LINES, _WRAP_LINES = "\033[?7l", "\033[?7h"
_HOME, _TO_END_OF_LINE, _TO_END_OF_SCREEN = "\033[H", "\033[K", "\033[J"


class Screen:
    """Draws in place on a terminal; elsewhere one picture below the other.

    In its block a terminal has no line editing and no echo. Ctrl-C ends the block, as an end that
    is expected.
    """

    def __init__(self) -> None:
        self.is_terminal = sys.stdout.isatty()
        self._settings: Any = None
        self._notices: Sequence[str] = ()

    def __enter__(self) -> Screen:
        if sys.stdin.isatty():
            import termios
            import tty

            self._settings = termios.tcgetattr(sys.stdin)
            tty.setcbreak(sys.stdin)
        if self.is_terminal:
            sys.stdout.write(_HIDE_CURSOR + _CUT_LINES + _CLEAR)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: object,
    ) -> bool:
        if self._settings is not None:
            import termios

            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._settings)
        if self.is_terminal:
            sys.stdout.write(_SHOW_CURSOR + _WRAP_LINES)
            sys.stdout.flush()
        return kind is not None and issubclass(kind, KeyboardInterrupt)

    def show(self, lines: Sequence[str], notices: Sequence[str] = ()) -> None:
        """Draw a picture, below sentences about what keeps it from being complete or new.

        :param lines: none: the picture before is as new as it gets, and only notices are shown.
        """
        if self.is_terminal:
            self._draw([*notices, *lines])
        else:
            for text in [*(notice for notice in notices if notice not in self._notices), *lines]:
                print(text)
        self._notices = notices
        sys.stdout.flush()

    def _draw(self, lines: Sequence[str]) -> None:
        height = os.get_terminal_size(sys.stdout.fileno()).lines - 1
        if len(lines) > height:
            lines = [*lines[: height - 1], f"... {len(lines) - height + 1} more lines"]
        drawn = "".join(f"{line}{_TO_END_OF_LINE}\n" for line in lines)
        sys.stdout.write(_HOME + drawn + _TO_END_OF_SCREEN)

    def is_left(self, seconds: float) -> bool:
        """Wait so many seconds; return at once with True when q is pressed."""
        end = time.monotonic() + seconds
        while (remaining_seconds := end - time.monotonic()) > 0:
            if self._settings is None:
                time.sleep(remaining_seconds)
            elif select.select([sys.stdin], [], [], remaining_seconds)[0]:
                # a text stream would keep to itself what it has read beyond the first key
                keys = os.read(sys.stdin.fileno(), 64)
                if b"q" in keys or not keys:
                    return True
        return False
