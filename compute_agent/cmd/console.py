"""The console that commands print tables and trees on."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.console import Console

_WIDE: Final = 4000


def new_console() -> Console:
    """Return a console of the standard output; a pipe has no width, so nothing is broken for it."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else _WIDE)
