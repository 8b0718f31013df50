"""Text from elsewhere, printed without orders to the terminal that it may have."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TextIO

ORDER: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters, but for tabs and ends of lines, and those that turn the direction of text."""


def printable(text: str) -> str:
    """Return a text without orders to the terminal, which names from elsewhere may have."""
    return ORDER.sub(lambda match: ascii(match[0])[1:-1], text)


def first_of(names: Sequence[str], most: int) -> str:
    """Return names for a sentence: of more than `most` the first, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def shortened(text: str, most: int) -> str:
    """Return a text with at most so many characters, the last of which say that there were more."""
    return text if len(text) <= most else f"{text[: most - 4]} ..."


class PrintableStream:
    """A stream on which no text gives orders; all but its writing is that of the stream below.

    :ivar terminal: the stream below, for orders of the program's own.
    """

    def __init__(self, terminal: TextIO) -> None:
        self.terminal = terminal

    def write(self, text: str) -> int:
        """Write a text, with its orders shown."""
        self.terminal.write(printable(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write texts, with their orders shown."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.terminal, name)


def show_orders() -> None:
    """Let what this program prints and logs from now on show orders to the terminal as text.

    Names, reasons and errors come from placement, hypervisors and files, and any command may
    print one.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, PrintableStream):
            setattr(sys, name, PrintableStream(stream))


def printed(command: Callable[[], int], unread_status: int) -> int:
    """Run a command and return its exit status.

    :param unread_status: the one of a command that the reader of its output leaves before its end,
        such as `head`, which has seen enough: that is no defect.
    """
    status = unread_status
    try:
        status = command()
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        # Python would complain again when it flushes
        sys.stdout = None
    except SystemExit:
        # after the help of a parser, which nobody has to read either
        printed(lambda: status, status)
        raise
    return status


def terminal(stream: TextIO) -> TextIO:
    """Return the stream that takes orders, for what writes its own and shows those of others."""
    return stream.terminal if isinstance(stream, PrintableStream) else stream
