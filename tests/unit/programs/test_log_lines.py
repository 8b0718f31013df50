"""Lines of a program's log: those of oslo.log, with the text of an error once."""

import copy
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from oslo_config import cfg
from oslo_context import context
from oslo_log import formatters, log

from compute_agent.programs import log_lines

LOGGER = logging.getLogger("placement_server.requestlog")


class LogRefused(Exception):
    """The failure that a program asks for."""


@pytest.fixture
def log_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file that the server logs to; the handlers are as before afterwards."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield tmp_path / "placement.log"
    for handler in set(root.handlers) - set(handlers):
        handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)


def configured(**options: object) -> cfg.ConfigOpts:
    conf = cfg.ConfigOpts()
    log.register_options(conf)
    conf([], default_config_files=[], default_config_dirs=[])
    for name, value in options.items():
        conf.set_override(name, value)
    return conf


def set_up(log_file: Path, **options: object) -> None:
    log_lines.set_up(configured(log_file=str(log_file), **options), "placement", LogRefused)


def fail() -> None:
    raise OSError("no such host")


def test_a_line_about_an_error_has_its_text_once(log_file: Path) -> None:
    line = "%(levelname)s %(message)s"
    set_up(log_file, logging_default_format_string=line, logging_context_format_string=line)
    try:
        fail()
    except OSError as error:
        LOGGER.warning("Nothing was claimed: %s", error)
    assert log_file.read_text() == "WARNING Nothing was claimed: no such host\n"


def test_a_line_that_asks_for_the_error_has_it(log_file: Path) -> None:
    set_up(log_file, logging_exception_prefix="")
    try:
        fail()
    except OSError:
        LOGGER.exception("A request failed")
    first, *others = log_file.read_text().splitlines()
    assert first.endswith("A request failed: OSError: no such host")
    assert "OSError: no such host" in others


def test_lines_of_requests_may_show_whatever_a_request_has(
    log_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # of this thread
    monkeypatch.setattr(context._request_store, "context", None, raising=False)
    line = "%(user)s of %(project_id)s: %(message)s"
    set_up(log_file, logging_context_format_string=line, logging_default_format_string="-")
    LOGGER.warning("without a request")
    request = context.RequestContext(user_id="me", project_id="mine", overwrite=False)
    LOGGER.warning("hello", extra={"context": request})
    assert log_file.read_text() == "-\nme of mine: hello\n"


def test_a_log_whose_directory_is_away_fails_nobody_and_goes_on_when_it_is_back(
    tmp_path: Path, log_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "log"
    directory.mkdir()
    set_up(directory / log_file.name)
    directory.rename(tmp_path / "moved")
    for _ in range(2):
        LOGGER.warning("while it is away")
    assert capsys.readouterr().err.count("No such file or directory") == 2
    directory.mkdir()
    LOGGER.warning("it is back")
    [line] = (directory / log_file.name).read_text().splitlines()
    assert line.endswith("it is back")


def test_other_formatters_are_left_alone(log_file: Path) -> None:
    set_up(log_file, use_json=True)
    [formatter] = {type(handler.formatter) for handler in logging.getLogger().handlers[-1:]}
    assert formatter is formatters.JSONFormatter


@pytest.mark.parametrize("is_of_request", [True, False])
@pytest.mark.parametrize("level", [logging.DEBUG, logging.INFO, logging.ERROR])
@pytest.mark.parametrize("is_of_error", [True, False])
@pytest.mark.parametrize(
    "texts",
    [
        {},
        {"logging_exception_prefix": "%(asctime)s %(isotime)s %(instance)s"},
        {"logging_exception_prefix": "%(color)s%(user_identity)s %(project)s "},
        {"logging_user_identity_format": "%(roles)s", "logging_debug_format_suffix": ""},
        {
            "logging_context_format_string": "%(isotime)s %(project)s %(version)s %(resource)s "
            "%(color)s%(user)s %(project_id)s %(error_summary)s %(threadName)s: %(message)s",
            "logging_user_identity_format": "%(user)s %(tenant)s",
        },
    ],
)
def test_lines_are_those_of_oslo_log(
    texts: dict[str, str], is_of_error: bool, level: int, is_of_request: bool
) -> None:
    conf = configured(**texts)
    error = None
    if is_of_error:
        try:
            fail()
        except OSError:
            error = sys.exc_info()
    record = LOGGER.makeRecord("placement", level, __file__, 1, "%s, %s", (1, "two"), error)
    if is_of_request:
        record.context = context.RequestContext(
            user_id="me", request_id="req-1", global_request_id="req-2", overwrite=False
        )
    own, other = (formatter.format(copy.copy(record)) for formatter in both_formatters(conf))
    assert own == other


def both_formatters(conf: cfg.ConfigOpts) -> tuple[logging.Formatter, logging.Formatter]:
    version, date_format = log_lines.__version__, conf.log_date_format
    return log_lines.Lines(conf, "placement"), formatters.ContextFormatter(
        project="placement", version=version, datefmt=date_format, config=conf
    )


@pytest.mark.parametrize("date_format", ["%Y-%m-%d %H:%M:%S", "%H:%M", ""])
def test_each_line_has_its_own_time(date_format: str) -> None:
    own, other = both_formatters(configured(log_date_format=date_format))
    for created in (1.25, 1.75, 3.0, 1e9, 1.5):
        record = LOGGER.makeRecord("placement", logging.INFO, __file__, 1, "%s", (created,), None)
        record.created, record.msecs = created, created % 1 * 1000
        assert own.format(copy.copy(record)) == other.format(copy.copy(record))


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("log_file = {}/nowhere/a.log", "No such file"),
        ("log_dir = {}/file", "Not a directory"),
        ("log_config_append = {}/nowhere", "No such file"),
        ("use_journal = true", "Systemd bindings do not exist"),
        ("use_syslog = true\nsyslog_log_facility = LOG_NO", "LOG_USER"),
        ("default_log_levels = amqp", "level"),
        ("logging_default_format_string = %(nothing)s", "nothing"),
        ("logging_context_format_string = %(nothing)d", "nothing"),
    ],
)
def test_a_log_that_cannot_be_is_refused_with_its_options(
    log_file: Path, line: str, cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oslo_log.handlers.journal", None)
    # of a test before, in this thread
    monkeypatch.delattr(context._request_store, "context", raising=False)
    (log_file.parent / "file").touch()
    line = line.format(log_file.parent)
    file = log_file.with_suffix(".conf")
    file.write_text(f"[DEFAULT]\n{line}\n")
    conf = cfg.ConfigOpts()
    log.register_options(conf)
    conf([], default_config_files=[str(file)], default_config_dirs=[])
    with pytest.raises(LogRefused, match=cause) as raised:
        log_lines.set_up(conf, "placement", LogRefused)
    for option in line.splitlines():
        assert option.replace("= true", "= True") in str(raised.value).replace("['amqp']", "amqp")
