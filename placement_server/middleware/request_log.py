"""The line of the log and the numbers of requests that were answered, many at a time."""

from __future__ import annotations

import logging
import logging.handlers
import select
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct
from oslo_context import context

from compute_agent.programs import log_lines
from compute_agent.programs.kept_values import KeptValues
from placement_server.metrics import metrics

REQUEST_LOG = logging.getLogger("placement_server.requestlog")
"""Operators filter and scrape by this name."""

_ORIGIN: Final = (REQUEST_LOG.name, logging.INFO, __file__, 0)

_LINE: Final = '%s "%s %s" status: %s len: %s microversion: %s'

_METHODS: Final = frozenset({"GET", "PUT", "POST", "DELETE", "HEAD", "OPTIONS", "PATCH"})
"""All other methods, which a client may make up, are one in the metrics."""

_WRITERS: Final = frozenset(
    {logging.StreamHandler, logging.FileHandler, logging.handlers.WatchedFileHandler}
)
"""Handlers that use nothing of a record but its line."""

_ERROR_SECONDS: Final = 600.0
"""For which an error of a filter is not reported again."""

_reported_errors: Final = KeptValues[str, bool](_ERROR_SECONDS, most=100)


class Answer(Struct, gc=False):
    """What the log and the metrics show of a request that was answered."""

    log_context: context.RequestContext
    client: str
    method: str
    uri: str
    route: str
    version: str
    status: str
    length: str
    seconds: float
    answered_at: float

    def arguments(self) -> tuple[str, ...]:
        """Return what its line shows."""
        return self.client, self.method, self.uri, self.status, self.length, self.version


def record(answers: Sequence[Answer]) -> None:
    """Count and log answers."""
    _count(answers)
    if not REQUEST_LOG.isEnabledFor(logging.INFO) or (len(answers) > 1 and _log_at_once(answers)):
        return
    for answer in answers:
        _log(answer)


def _count(answers: Sequence[Answer]) -> None:
    durations_of = defaultdict(list)
    for answer in answers:
        durations_of[answer.method, answer.route, answer.status].append(answer.seconds)
    for (method, route, status), durations in durations_of.items():
        shown_method = method if method in _METHODS else "other"
        metrics.REQUESTS.labels(shown_method, route, status).inc(len(durations))
        request_seconds = metrics.REQUEST_SECONDS.labels(shown_method, route)
        for duration in durations:
            request_seconds.observe(duration)


def _log_at_once(answers: Sequence[Answer]) -> bool:
    """Log answers with few writes where only their lines matter; return whether it was done."""
    lines = _lines_of_log()
    if lines is None:
        return False
    try:
        texts = _texts(lines, answers)
    except (KeyError, TypeError, ValueError):
        # a format of more, or a line that cannot be: logging reports which
        return False
    if not all(map(str.isascii, texts)):
        # a file may not take one of them
        return False
    for text in _writes(texts):
        REQUEST_LOG.handle(log_lines.WrittenLines(*_ORIGIN, text, None, None))
    return True


def _texts(lines: log_lines.Lines, answers: Sequence[Answer]) -> list[str]:
    """Return the line of each answer, as `lines` formats it for a record of its own."""
    record = logging.LogRecord(*_ORIGIN, _LINE, (), None)
    # what no line shows of all
    del record.relativeCreated
    formats: dict[tuple[str | None, str | None], str] = {}
    texts = []
    for answer in answers:
        request, moment, arguments = answer.log_context, answer.answered_at, answer.arguments()
        own = {
            "created": moment,
            "asctime": lines.time_text(int(moment)),
            "msecs": log_lines.milliseconds(moment),
            "args": arguments,
            "message": _LINE % arguments,
            "request_id": request.request_id,
            "global_request_id": request.global_request_id,
        }
        user = request.user_id, request.project_id
        if user not in formats:
            formats[user] = lines.format_of_requests(record, request, own.keys())
        texts.append(formats[user] % own)
    return texts


def _lines_of_log() -> log_lines.Lines | None:
    """Return what makes the lines of the log, if nobody sees more of records than these."""
    if logging.getLogRecordFactory() is not logging.LogRecord or REQUEST_LOG.filters:
        return None
    handlers: list[logging.Handler] = []
    logger: logging.Logger | None = REQUEST_LOG
    while logger:
        handlers += logger.handlers
        logger = logger.parent if logger.propagate else None
    formatters = {handler.formatter for handler in handlers}
    if len(formatters) != 1 or any(
        type(handler) not in _WRITERS or handler.filters for handler in handlers
    ):
        return None
    lines = formatters.pop()
    return lines if type(lines) is log_lines.Lines and lines.datefmt else None


def _writes(lines: Sequence[str]) -> Iterator[str]:
    """Join lines to what a pipe takes as a whole, though other workers write to it too."""
    first, size = 0, 0
    for number, line in enumerate(lines):
        size += len(line) + 1
        if size > select.PIPE_BUF and number > first:
            yield "\n".join(lines[first:number])
            first, size = number, len(line) + 1
    yield "\n".join(lines[first:])


def _log(answer: Answer) -> None:
    arguments = answer.arguments()
    try:
        # for filters and the record factory
        answer.log_context.update_store()
        # without the search for the caller
        record = REQUEST_LOG.makeRecord(*_ORIGIN, _LINE, arguments, None)
        record.relativeCreated -= (record.created - answer.answered_at) * 1000
        record.created = answer.answered_at
        record.msecs = log_lines.milliseconds(answer.answered_at)
        REQUEST_LOG.handle(record)
    except Exception as error:  # noqa: BLE001 - of a filter: no reason to fail a request
        if _reported_errors.is_new(repr(error), True):
            # as logging reports errors of handlers
            logging.Handler().handleError(logging.LogRecord(*_ORIGIN, _LINE, arguments, None))
