"""The terminal as commands print on it: tables and trees, and the pager."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from compute_agent.programs.printable import ORDER, printable, terminal

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

_WIDE: Final = 4000

_LESS: Final = "FRX"
"""Options of less as git gives them: end where one screen is enough, keep colours and the text."""


def new_console() -> Console:
    """Return a console of the standard output; a pipe has no width, so nothing is broken for it."""
    from rich.console import Console
    from rich.segment import Segment

    class NamesShown(Console):
        """A console whose only orders to the terminal are its own."""

        def render(self, *arguments: Any, **keywords: Any) -> Iterator[Segment]:
            for segment in super().render(*arguments, **keywords):
                if segment.control is None and ORDER.search(segment.text):
                    yield Segment(printable(segment.text), segment.style)
                else:
                    yield segment

    width = None if sys.stdout.isatty() else _WIDE
    return NamesShown(highlight=False, width=width, file=terminal(sys.stdout))


def columns(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Yield lines in which the cells of each column begin below each other."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip()


def new_table(*headings: str) -> Table:
    """Return a table without lines, whose cells are broken where they are too long."""
    from rich.table import Table

    table = Table(box=None, header_style="dim", pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def print_paged(part: RenderableType) -> None:
    """Print; in the program of `PAGER` (less by default) what a terminal cannot show at once."""
    console = new_console()
    if not sys.stdout.isatty():
        console.print(part)
        return
    with console.capture() as capture:
        console.print(part)
    text = capture.get()
    pager = shlex.split(os.environ.get("PAGER", "less"))
    if text.count("\n") < console.height or not pager or shutil.which(pager[0]) is None:
        terminal(sys.stdout).write(text)
        return
    sys.stdout.flush()
    subprocess.run(
        pager,
        input=text,
        text=True,
        check=False,
        stdout=sys.stdout,
        env={"LESS": _LESS, **os.environ},
    )
