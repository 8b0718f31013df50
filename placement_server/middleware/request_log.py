"""The line of the log and the numbers of requests that were answered, many at a time."""

from __future__ import annotations

import functools
import logging
import logging.handlers
import select
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from oslo_context import context
from prometheus_client import Counter

from compute_agent.programs import log_lines
from compute_agent.programs.kept_values import KeptValues
from placement_server.api.response import Headers
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


class Answer(NamedTuple):
    """What the log and the metrics show of a request that was answered."""

    log_context: context.RequestContext
    client: str
    method: str
    uri: str
    route: str
    version: str
    status: str
    headers: Headers
    seconds: float
    answered_at: float


def record(answers: Sequence[Answer]) -> None:
    """Count and log answers."""
    _count(answers)
    if not REQUEST_LOG.isEnabledFor(logging.INFO) or (len(answers) > 1 and _log_at_once(answers)):
        return
    for answer in answers:
        _log(answer)


def _count(answers: Sequence[Answer]) -> None:
    seconds_of = defaultdict(list)
    for answer in answers:
        seconds_of[answer.method, answer.route, answer.status].append(answer.seconds)
    for (method, route, status), seconds in seconds_of.items():
        shown_method = method if method in _METHODS else "other"
        requests, request_seconds = _series(shown_method, route, status)
        requests.inc(len(seconds))
        request_seconds.observe_all(seconds)


# As many as there are series: to look them up takes longer than to count.
@functools.cache
def _series(method: str, route: str, status: str) -> tuple[Counter, metrics.Durations]:
    return (
        metrics.REQUESTS.labels(method, route, status),
        metrics.REQUEST_SECONDS.labels(method, route),
    )


def _log_at_once(answers: Sequence[Answer]) -> bool:
    """Log answers with few writes where only their lines matter; return whether it was done."""
    lines = _lines_of_log()
    if lines is None:
        return False
    record = logging.LogRecord(*_ORIGIN, _LINE, (), None)
    try:
        texts = lines.lines(
            record,
            [(answer.answered_at, answer.log_context, _arguments(answer)) for answer in answers],
        )
    except Exception:  # noqa: BLE001 - logging reports the answer whose line it is
        return False
    if not all(map(str.isascii, texts)):
        # a file may not take one of them
        return False
    for text in _writes(texts):
        REQUEST_LOG.handle(log_lines.WrittenLines(*_ORIGIN, text, None, None))
    return True


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
    return lines if type(lines) is log_lines.Lines else None


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
    arguments = _arguments(answer)
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
        if logging.lastResort and _reported_errors.is_new(repr(error), True):
            # as logging reports errors of handlers
            logging.lastResort.handleError(logging.LogRecord(*_ORIGIN, _LINE, arguments, None))


def _arguments(answer: Answer) -> tuple[str, ...]:
    length = "-"
    # it is among the last
    for name, value in reversed(answer.headers):
        if name.lower() == "content-length":
            length = value
            break
    return answer.client, answer.method, answer.uri, answer.status, length, answer.version
