"""Lines of a program's log: those of oslo.log, in a third of the time."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Set
from functools import lru_cache, partial
from typing import Any, Final

from oslo_config import cfg
from oslo_context import context
from oslo_log import formatters, log

from compute_agent import __version__

_EMPTY: Final = {
    **dict.fromkeys(("instance", "color", "user_identity", "resource"), ""),
    **dict.fromkeys(("user_name", "project_name", "global_request_id"), ""),
    "error_summary": "-",
}
"""What formats may show and most lines lack."""

_OPTIONS: Final = (
    *("log_config_append", "log_file", "log_dir", "use_syslog", "syslog_log_facility"),
    *("use_journal", "default_log_levels", "log_date_format", "logging_default_format_string"),
    *("logging_context_format_string", "logging_user_identity_format"),
)
"""What may make a log impossible."""

_NAME: Final = re.compile(r"%\((\w+)\)")
_FIELD: Final = re.compile(r"%%|%\((?P<name>[^)]*)\)[^a-zA-Z%]*[hlL]?[a-zA-Z%]")
TRY_AGAIN: Final = signal.SIGURG
"""Signal at which a thread that waits for a log tries again; it needs a handler, whichever."""

_PATIENCE: Final = 3.0
"""Seconds that a stop waits for a log which takes no more lines."""


class LooseContext(context.RequestContext):  # type: ignore[misc]
    """A context that this thread does not keep: its lines would all have a request id."""

    def update_store(self) -> None:
        """Leave the thread as it is."""


class Lines(formatters.ContextFormatter):  # type: ignore[misc]
    """Formats lines as `[DEFAULT]logging_*` say, like its base but for two things.

    The base adds the error that is being handled to each warning; here only a line that asks for
    it has it: our messages have its text already, where it helps. And the base looks up options
    and context again and again, which took longer than all else in a small request.
    """

    def __init__(self, conf: cfg.ConfigOpts, program: str) -> None:
        super().__init__(
            project=program, version=__version__, datefmt=conf.log_date_format, config=conf
        )
        self._format_of_requests = conf.logging_context_format_string
        self._format_of_others = conf.logging_default_format_string
        identity = conf.logging_user_identity_format
        self._identity_names = _NAME.findall(identity)

        @lru_cache(maxsize=128)
        def identity_text(*values: object) -> str:
            return str(identity % dict(zip(self._identity_names, values, strict=True)))

        @lru_cache(maxsize=1)
        def time_text(second: int) -> str:
            return time.strftime(self.datefmt, self.converter(second))

        self._identity_text = identity_text
        self.time_text = time_text

    def format(self, record: logging.LogRecord) -> str:
        if type(record) is WrittenLines:
            return record.getMessage()
        if record.exc_info:
            return str(super().format(record))
        shown = self._shown(record)
        if request := shown.get("context") or context.get_current():
            shown.update(self._values(request))
        line = self._format_of_requests if shown.get("request_id") else self._format_of_others
        if record.levelno == logging.DEBUG and (suffix := self.conf.logging_debug_format_suffix):
            line = f"{line} {suffix}"
        if "%(asctime)" in line:
            shown["asctime"] = (
                self.time_text(int(record.created))
                if self.datefmt
                else self.formatTime(record, self.datefmt)
            )
        if "%(isotime)" in line:
            self._compute_iso_time(record)
            shown["isotime"] = vars(record)["isotime"]
        shown["message"] = record.getMessage()
        text: str = line % shown
        if record.exc_text or record.stack_info:
            return "\n".join(filter(None, (text, record.exc_text, record.stack_info)))
        return text

    def format_of_requests(
        self, record: logging.LogRecord, request: context.RequestContext, own: Set[str]
    ) -> str:
        """Return the format of requests with all filled in that many records have in common.

        :param record: one of them, above DEBUG.
        :param request: one of theirs, which have a user in common.
        :param own: names of what each has of its own, and the format leaves to be filled in.
        :raises KeyError: each shows something else of its own.
        """
        if not own.isdisjoint(self._identity_names):
            raise KeyError("user_identity")
        values = {**self._shown(record), **self._values(request)}

        def fill_in(field: re.Match[str]) -> str:
            if field["name"] is None or field["name"] in own:
                return field[0]
            return str(field[0] % values).replace("%", "%%")

        return _FIELD.sub(fill_in, self._format_of_requests)

    def _shown(self, record: logging.LogRecord) -> dict[str, Any]:
        return {**_EMPTY, **vars(record), "project": self.project, "version": self.version}

    def _values(self, request: context.RequestContext) -> dict[str, Any]:
        values: dict[str, Any] = request.get_logging_values()
        values["user_identity"] = self._identity_text(
            *[values.get(name) or "-" for name in self._identity_names]
        )
        return values


class WrittenLines(logging.LogRecord):
    """A record whose message is written as it is: lines of formats from `Lines`."""


def milliseconds(moment: float) -> float:
    """Return the milliseconds of a moment as a record has them."""
    return int(moment % 1 * 1000) + 0.0


def set_up(conf: cfg.ConfigOpts, program: str, failure: type[Exception]) -> None:
    """Log as configured, under the name of the program.

    Handlers with other formatters keep theirs. Lines go to the standard output by default, whose
    reader may leave before the end; then they are dropped.

    :param failure: raised where the options of the log cannot be used.
    """
    try:
        log.setup(conf, program)
        lines = Lines(conf, program)
        for sample in ({}, {"context": LooseContext(request_id="-")}):
            lines.format(logging.makeLogRecord(sample))
    except (OSError, log.LogConfigError, KeyError, RuntimeError, TypeError, ValueError) as error:
        places = ((name, conf.get_location(name)) for name in _OPTIONS)
        options = [f"{n} = {conf[n]}" for n, at in places if at and at.location.is_user_controlled]
        raise failure(
            f"The log cannot be set up with [DEFAULT]{', '.join(options)}: {error}. Correct that; "
            "a file needs a directory that exists and that this user may write to."
        ) from error
    for handler in logging.getLogger().handlers:
        if type(handler.formatter) is formatters.ContextFormatter:
            handler.setFormatter(lines)
        handler.emit = partial(_emit, handler)  # type: ignore[method-assign]
        handler.handleError = partial(  # type: ignore[method-assign]
            _report_error, handler.handleError
        )


def leave_when_stuck(on_stuck: Callable[[], None] = lambda: None) -> None:
    """Have a log that takes no more lines for some seconds write to nowhere: a stop waits for it.

    To be run in a thread.

    :param on_stuck: called before.
    """
    while outputs := _outputs():
        if stuck := _stuck(outputs):
            break
        time.sleep(1.0)
    else:
        return
    on_stuck()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for output in stuck:
        os.dup2(nowhere, output)
    for thread in threading.enumerate():
        signal.pthread_kill(thread.ident or 0, TRY_AGAIN)


def _stuck(outputs: list[int]) -> list[int]:
    """Return those that take nothing for some seconds."""
    end = time.monotonic() + _PATIENCE
    while outputs and (left := end - time.monotonic()) > 0:
        ready = select.select((), outputs, (), left)[1]
        outputs = [output for output in outputs if output not in ready]
    return outputs


def _outputs() -> list[int]:
    """Return the files that the log is written to, and that of dumps and errors."""
    streams: list[Any] = [getattr(h, "stream", None) for h in logging.getLogger().handlers]
    outputs = []
    for stream in (*streams, sys.stderr):
        # a stream of a test has no file
        with contextlib.suppress(AttributeError, OSError, ValueError):
            outputs.append(stream.fileno())
    return outputs


def _emit(handler: logging.Handler, record: logging.LogRecord) -> None:
    try:
        type(handler).emit(handler, record)
    except OSError:
        # logging leaves it to the caller that a file which was moved cannot be opened again
        handler.handleError(record)


def _report_error(report: Callable[[logging.LogRecord], None], record: logging.LogRecord) -> None:
    if not isinstance(sys.exc_info()[1], BrokenPipeError):
        report(record)
