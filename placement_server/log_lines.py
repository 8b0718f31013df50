"""Lines of the log, as oslo.log formats them and in fewer steps.

Nearly all lines of a server are those of requests, for which most of oslo.log's formatter has
nothing to do, and it takes longer than anything else in the writing of such a line.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from oslo_config import cfg
from oslo_context import context
from oslo_log import formatters

#: Placeholders for which oslo.log does more than to look a value up.
_COMPUTED: Final = ("%(isotime)", "%(error_summary)")

#: What oslo.log sets where a record has nothing of the name.
_DEFAULTS: Final = dict.fromkeys(
    ("instance", "color", "resource", "user_name", "project_name", "global_request_id"), ""
)

#: Attributes by which a record differs from those of requests.
_UNUSUAL: Final = frozenset({"context", "extra", "instance", "instance_uuid"})


class _Dashed(dict[str, Any]):
    """Values of which missing and empty ones are dashes."""

    def __getitem__(self, name: str) -> Any:
        return self.get(name) or "-"


class RequestLines(logging.Formatter):
    """Formats lines without an exception, of requests; another formatter does all others.

    Also those that cannot be formatted, as oslo.log reports some of them in the log. No line ends
    with the error that is being handled, unless it asks for it: our messages have its text already,
    where it helps.

    :param others: oslo.log's formatter, whose lines these equal otherwise.
    """

    def __init__(self, others: formatters.ContextFormatter, conf: cfg.ConfigOpts) -> None:
        # oslo.log takes any format, also one without a placeholder
        super().__init__(conf.logging_context_format_string, others.datefmt, validate=False)
        self._line = str(self._fmt)
        self._others = others
        self._identity = conf.logging_user_identity_format
        self._version = others.version

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        current = context.get_current()
        if (
            current is None
            or not current.request_id
            or current.resource_uuid
            or record.levelno != logging.INFO
            or record.exc_info
            or record.exc_text
            or record.stack_info
            or not _UNUSUAL.isdisjoint(record.__dict__)
        ):
            return self._unusual_line(record)
        try:
            return self._line_of(record, current.get_logging_values())
        except (TypeError, ValueError, KeyError):
            return self._unusual_line(record)

    def _unusual_line(self, record: logging.LogRecord) -> str:
        line = str(self._others.format(record))
        error = getattr(record, "error_summary", "")
        return line if record.exc_info or not error else line.removesuffix(f": {error}")

    def _line_of(self, record: logging.LogRecord, logged_values: dict[str, Any]) -> str:
        values = {**_DEFAULTS, **record.__dict__, "version": self._version, **logged_values}
        values["user_identity"] = self._identity % _Dashed(logged_values)
        values["message"] = record.getMessage()
        values["asctime"] = self.formatTime(record, self.datefmt)
        return self._line % values


def shorten(conf: cfg.ConfigOpts) -> None:
    """Format the lines of requests in fewer steps from now on; to be called after oslo.log's setup.

    Handlers with other formatters keep theirs.
    """
    if any(name in conf.logging_context_format_string for name in _COMPUTED):
        return
    for handler in logging.getLogger().handlers:
        if type(handler.formatter) is formatters.ContextFormatter:
            handler.setFormatter(RequestLines(handler.formatter, conf))
