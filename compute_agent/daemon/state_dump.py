"""State of a running program as text: written on SIGUSR2, for bug reports."""

from __future__ import annotations

import json
import logging
import sys
import threading
import traceback
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oslo_config import cfg


def write(
    program: str, status: dict[str, Any], details: dict[str, Any], conf: cfg.ConfigOpts
) -> None:
    """Write the state to stderr, with all threads, and all options without their secrets.

    :param status: the status document.
    :param details: sections of whatever else, by title.
    """
    options = _Lines()
    conf.log_opt_values(options, logging.INFO)
    # one write, so that the dumps of several processes do not mix
    sys.stderr.write(_text(f"state of {program}", status, details, options.lines))
    sys.stderr.flush()


def _text(title: str, status: dict[str, Any], details: dict[str, Any], options: list[str]) -> str:
    parts = [_section("status", json.dumps(status, indent=2, default=str))]
    parts += [_section(name, str(content)) for name, content in details.items()]
    parts.append(_section("threads", _threads()))
    parts.append(_section("options", "\n".join(options)))
    return f"=== {title}: begin ===\n" + "\n".join(parts) + f"=== {title}: end ===\n"


def _section(title: str, content: str) -> str:
    return f"--- {title} ---\n{content}\n"


def _threads() -> str:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    blocks = []
    for ident, frame in sorted(sys._current_frames().items()):
        stack = "".join(traceback.format_stack(frame))
        blocks.append(f"thread {names.get(ident, 'unknown')} ({ident}):\n{stack}")
    return "\n".join(blocks)


class _Lines:
    """A logger that keeps its lines, for the one method of oslo.config that lists values."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def log(self, _level: int, text: str, *values: object) -> None:
        self.lines.append(text % values)
