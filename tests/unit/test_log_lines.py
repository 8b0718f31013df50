"""Lines of the log: those of oslo.log, also where they are formatted in fewer steps."""

import copy
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from oslo_config import cfg
from oslo_context import context
from oslo_log import formatters, log

from placement_server import log_lines

LOGGER = logging.getLogger("placement_server.requestlog")
REQUEST = {"request_id": "req-1", "user_id": "admin", "project_id": "p"}
LINE = ('%s "%s %s" status: %s', ("::1", "GET", "/%20%s", 304))


class Lines(logging.Handler):
    """A handler that keeps records, and what its formatter makes of them."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(copy.copy(record))
        self.lines.append(self.format(record))


@pytest.fixture
def handler() -> Iterator[Lines]:
    handler = Lines()
    root, level = logging.getLogger(), LOGGER.level
    root.addHandler(handler)
    LOGGER.setLevel(logging.DEBUG)
    yield handler
    LOGGER.setLevel(level)
    root.removeHandler(handler)


def in_context(values: dict[str, str] | None, action: Callable[[], None]) -> None:
    """Run something in a thread of its own, which is all that a context reaches."""

    def run() -> None:
        if values is not None:
            context.RequestContext(**values)
        action()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()


def configured(**options: Any) -> cfg.ConfigOpts:
    conf = cfg.ConfigOpts()
    log.register_options(conf)
    conf([], default_config_files=[], default_config_dirs=[])
    for name, value in options.items():
        conf.set_override(name, value)
    return conf


def failed() -> None:
    try:
        raise ValueError("in vain")
    except ValueError:
        LOGGER.exception("A request failed")


def during_an_error() -> None:
    try:
        raise KeyError("x")
    except KeyError:
        LOGGER.info(LINE[0], *LINE[1])


@pytest.mark.parametrize(
    "values",
    [
        None,
        REQUEST,
        {"request_id": "req-1"},
        {**REQUEST, "global_request_id": "req-2", "user_domain_id": "d", "domain_id": "e"},
        {**REQUEST, "resource_uuid": "r", "auth_token": "secret"},
    ],
)
@pytest.mark.parametrize(
    "action",
    [
        lambda: LOGGER.info(LINE[0], *LINE[1]),
        lambda: LOGGER.debug("found %d", 3),
        lambda: LOGGER.warning("100 % full"),
        lambda: LOGGER.info("%s of %(name)s", {"name": "x"}),
        lambda: LOGGER.info("with its stack", stack_info=True),
        lambda: LOGGER.info("about", extra={"instance_uuid": "i", "resource": "r"}),
        lambda: LOGGER.info("of another", extra={"version": "9", "project": "q"}),
        lambda: LOGGER.info("%(count)d hosts", {"count": "many"}),
        lambda: log.getLogger("placement_server.requestlog").info("of", instance_uuid="i"),
        failed,
        during_an_error,
    ],
)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"logging_user_identity_format": "%(user)s/%(domain)s/%(user_name)s/%(missing)s"},
        {"logging_context_format_string": "%(request_id)s %(project)s %(version)s|%(message)s"},
        {"logging_context_format_string": "%(isotime)s %(message)s"},
        {"logging_context_format_string": "%(message)s because: %(error_summary)s"},
        {"logging_context_format_string": ""},
        {"logging_context_format_string": "a line"},
        {"log_date_format": "%H:%M"},
    ],
)
def test_a_line_is_that_of_oslo_log(
    handler: Lines,
    options: dict[str, Any],
    action: Callable[[], None],
    values: dict[str, str] | None,
) -> None:
    conf = configured(**options)
    others = formatters.ContextFormatter(
        project="placement", version="1", datefmt=conf.log_date_format, config=conf
    )
    handler.setFormatter(others)

    log_lines.shorten(conf)

    with_oslo: list[str] = []

    def both() -> None:
        action()
        with_oslo.extend(others.format(record) for record in handler.records)

    in_context(values, both)
    assert handler.lines == with_oslo != []


@pytest.mark.parametrize("values", [None, REQUEST])
def test_a_warning_about_an_error_has_its_text_once(
    handler: Lines, values: dict[str, str] | None
) -> None:
    conf = configured()
    handler.setFormatter(formatters.ContextFormatter(project="placement", version="1", config=conf))
    log_lines.shorten(conf)

    def warn() -> None:
        try:
            raise OSError("no such host")
        except OSError as error:
            LOGGER.warning("Nothing was claimed: %s", error)

    in_context(values, warn)
    (line,) = handler.lines
    assert line.endswith("Nothing was claimed: no such host")


def test_other_formatters_are_left_alone(handler: Lines) -> None:
    formatter = formatters.JSONFormatter()
    handler.setFormatter(formatter)

    log_lines.shorten(configured())

    assert handler.formatter is formatter
