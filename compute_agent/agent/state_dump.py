"""State of a running agent as text: written on SIGUSR2, for bug reports."""

from __future__ import annotations

import json
import sys
import threading
import traceback
from typing import Any

TITLE = "state of compute-agent"


def text(status: dict[str, Any], details: dict[str, Any], options: list[str]) -> str:
    """Return the dump.

    :param status: the status document.
    :param details: sections of whatever else, by title.
    :param options: one line per configured option, secrets already hidden.
    """
    parts = [_section("status", json.dumps(status, indent=2, default=str))]
    parts += [_section(title, str(content)) for title, content in details.items()]
    parts.append(_section("threads", _threads()))
    parts.append(_section("options", "\n".join(options)))
    return f"=== {TITLE}: begin ===\n" + "\n".join(parts) + f"=== {TITLE}: end ===\n"


def _section(title: str, content: str) -> str:
    return f"--- {title} ---\n{content}\n"


def _threads() -> str:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    blocks = []
    for ident, frame in sorted(sys._current_frames().items()):
        stack = "".join(traceback.format_stack(frame))
        blocks.append(f"thread {names.get(ident, 'unknown')} ({ident}):\n{stack}")
    return "\n".join(blocks)
