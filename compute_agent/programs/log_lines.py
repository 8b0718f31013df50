"""Lines of a program's log: those of oslo.log, with the text of an error once."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Final

from oslo_config import cfg
from oslo_log import formatters, log

from compute_agent import __version__

_FORMATS: Final = (
    "logging_context_format_string",
    "logging_default_format_string",
    "logging_debug_format_suffix",
    "logging_exception_prefix",
    "logging_user_identity_format",
    "instance_format",
    "instance_uuid_format",
)


class WithoutForeignErrors(formatters.ContextFormatter):  # type: ignore[misc]
    """Formats lines without the error that is being handled, unless the line asks for it.

    Our messages have its text already, where it helps.
    """

    def __init__(self, conf: cfg.ConfigOpts, program: str) -> None:
        # read once: oslo.log looks up four of them for each line
        formats = SimpleNamespace(**{name: conf[name] for name in _FORMATS})
        super().__init__(
            project=program, version=__version__, datefmt=conf.log_date_format, config=formats
        )
        self._has_iso_time = any("isotime" in str(text) for text in vars(formats).values())

    def format(self, record: logging.LogRecord) -> str:
        line: str = super().format(record)
        error = getattr(record, "error_summary", "")
        return line if record.exc_info or not error else line.removesuffix(f": {error}")

    def _compute_iso_time(self, record: logging.LogRecord) -> None:
        """Compute a time that takes a third of a line, where a format shows it."""
        if self._has_iso_time:
            super()._compute_iso_time(record)


def set_up(conf: cfg.ConfigOpts, program: str) -> None:
    """Log as configured, under the name of the program.

    Handlers with other formatters keep theirs.
    """
    log.setup(conf, program)
    for handler in logging.getLogger().handlers:
        if type(handler.formatter) is formatters.ContextFormatter:
            handler.setFormatter(WithoutForeignErrors(conf, program))
