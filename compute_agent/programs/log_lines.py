"""Lines of a program's log: those of oslo.log, with the text of an error once."""

from __future__ import annotations

import logging

from oslo_config import cfg
from oslo_log import formatters, log

from compute_agent import __version__


class WithoutForeignErrors(formatters.ContextFormatter):  # type: ignore[misc]
    """Formats lines without the error that is being handled, unless the line asks for it.

    Our messages have its text already, where it helps.
    """

    def format(self, record: logging.LogRecord) -> str:
        line: str = super().format(record)
        error = getattr(record, "error_summary", "")
        return line if record.exc_info or not error else line.removesuffix(f": {error}")


def set_up(conf: cfg.ConfigOpts, program: str) -> None:
    """Log as configured, under the name of the program.

    Handlers with other formatters keep theirs.
    """
    log.setup(conf, program)
    for handler in logging.getLogger().handlers:
        if type(handler.formatter) is formatters.ContextFormatter:
            handler.setFormatter(
                WithoutForeignErrors(
                    project=program,
                    version=__version__,
                    datefmt=conf.log_date_format,
                    config=conf,
                )
            )
