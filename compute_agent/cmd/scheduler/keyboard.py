"""Keys of a terminal, read one by one while a command goes on."""

from __future__ import annotations

import os
import select
import sys
import time
from typing import Any, TextIO


class Keyboard:
    """A terminal without line editing and echo in its block; anything else is only waited for."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._settings: Any = None

    def __enter__(self) -> Keyboard:
        if self._stream.isatty():
            import termios
            import tty

            self._settings = termios.tcgetattr(self._stream)
            tty.setcbreak(self._stream)
            sys.stdout.write("\033[?25l\033[2J")
        return self

    def __exit__(self, *_: object) -> None:
        if self._settings is not None:
            import termios

            termios.tcsetattr(self._stream, termios.TCSADRAIN, self._settings)
            sys.stdout.write("\033[?25h")
            sys.stdout.flush()

    def pressed(self, key: str, seconds: float) -> bool:
        """Wait so many seconds; return at once with True when `key` is pressed."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if self._settings is None:
                time.sleep(left)
            elif select.select([self._stream], [], [], left)[0]:
                # a text stream would keep to itself what it has read beyond the first key
                keys = os.read(self._stream.fileno(), 64)
                if key.encode() in keys or not keys:
                    return True
        return False
