"""The console that commands print tables and trees on, and its pager."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_WIDE: Final = 4000

_LESS: Final = "FRX"
"""Options of less as git gives them: end where one screen is enough, keep colours and the text."""


def new_console() -> Console:
    """Return a console of the standard output; a pipe has no width, so nothing is broken for it."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else _WIDE)


def print_paged(part: RenderableType) -> None:
    """Print; in the program of ``PAGER`` (less by default) what a terminal cannot show at once."""
    console = new_console()
    if not sys.stdout.isatty():
        console.print(part)
        return
    with console.capture() as captured:
        console.print(part)
    text = captured.get()
    pager = shlex.split(os.environ.get("PAGER", "less"))
    if text.count("\n") < console.height or not pager or shutil.which(pager[0]) is None:
        sys.stdout.write(text)
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
