"""Logs of long-running programs: one format, and one line per condition from the message bus.

The library of the message bus logs every try of every connection: a broker that is away costs a
line a second. Agents and schedulers log by themselves what that means for them.
"""

from __future__ import annotations

import logging
import re
import time
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from compute_agent import errors
from compute_agent.daemon import message_bus
from compute_agent.programs import log_lines
from compute_agent.programs.kept_values import KeptValues

if TYPE_CHECKING:
    from oslo_config import cfg

PERIOD_SECONDS: Final = 600.0
"""A condition that lasts is logged again after this time."""

CONDITIONS_KEPT: Final = 1000
"""When there are so many, the oldest counts as not logged."""

_CONNECTION: Final = re.compile(
    r"unreachable|connect|publish message|heartbeat|broken pipe|reset by peer|during closing",
    re.IGNORECASE,
)
_CONNECTED: Final = re.compile(r"Reconnected to")
_LEAVING: Final = re.compile(r"during closing channel")
"""What a broker says to a program that leaves, which is of no interest to anybody."""
_WRAPPER: Final = "compute_agent.daemon.tracing"
"""It surrounds calls, whose errors are not its own."""
_SHOWN: Final = 200
_MORE: Final = " (more lines of the library about this are left out)"


def set_up(conf: cfg.ConfigOpts, program: str) -> None:
    """Log as configured, under the name of the program.

    :raises InvalidConfiguration: the options of the log cannot be used.
    """
    log_lines.set_up(conf, program, errors.InvalidConfiguration)
    conditions = BusConditions()
    for handler in logging.getLogger().handlers:
        handler.addFilter(conditions.pass_on)


class BusConditions:
    """A filter that passes the first line of a condition of the message bus.

    :param clock: seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._is_away = False
        self._logged_conditions: KeptValues[object, bool] = KeptValues(
            PERIOD_SECONDS, clock, most=CONDITIONS_KEPT
        )

    def pass_on(self, record: logging.LogRecord) -> bool:
        """Return whether a record is logged; each is judged once, for all handlers."""
        if not record.name.startswith(message_bus.LIBRARIES) or record.levelno <= logging.DEBUG:
            return True
        judgement: bool | None = getattr(record, "is_passed_on", None)
        if judgement is None:
            judgement = record.is_passed_on = self._judge(record)
        return judgement

    def _judge(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if _LEAVING.search(text) or message_bus.is_without_listener(text):
            return False
        if _CONNECTED.search(text):
            was_away, self._is_away = self._is_away, False
            return was_away
        if not _CONNECTION.search(text):
            return self._is_due(_condition_of(record, text))
        is_news = not self._is_away
        if record.levelno < logging.WARNING or not self._is_due("connection", anyway=is_news):
            return False
        self._is_away = True
        record.msg, record.args, record.exc_info = text + _MORE, (), None
        return True

    def _is_due(self, condition: object, *, anyway: bool = False) -> bool:
        return self._logged_conditions.is_new(condition, True) or anyway


def _condition_of(record: logging.LogRecord, text: str) -> object:
    """Return what a record is about, without the traceback of a message that nobody can read.

    A defect of this program keeps its traceback: it passes through code of this program.
    """
    error = record.exc_info[1] if record.exc_info else None
    if error is None or _passes_through_us(error):
        return record.name, str(record.msg), repr(error)
    kind = type(error).__name__
    title = text.partition("\n")[0]
    record.msg, record.args = f"{title[:_SHOWN]}: {kind}: {str(error)[:_SHOWN]!r}", ()
    record.exc_info = record.exc_text = None
    return record.name, kind


def _passes_through_us(error: BaseException) -> bool:
    if error.__traceback__ is None:
        return True
    return any(
        frame.f_globals.get("__name__", "").startswith("compute_agent.")
        and frame.f_globals["__name__"] != _WRAPPER
        for frame, _ in traceback.walk_tb(error.__traceback__)
    )
