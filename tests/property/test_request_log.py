"""Lines of many requests written at once, against those that logging writes one by one."""

from __future__ import annotations

import io
import logging
import select
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oslo_config import cfg
from oslo_context import context
from oslo_log import log

from compute_agent.programs import log_lines
from placement_server.middleware import request_log
from placement_server.middleware.observation import _Context
from placement_server.middleware.request_log import REQUEST_LOG, Answer

DEFAULTS = cfg.ConfigOpts()
log.register_options(DEFAULTS)
DEFAULTS([], default_config_files=[], default_config_dirs=[])

TEXTS = st.text("aé%\n \N{SNOWMAN}({s", max_size=6)
OF_EACH_RECORD = "%(isotime)s"
"""What is written line by line."""

FIELDS = st.sampled_from(
    (
        *("%(asctime)s", "%(msecs)03d", "%(msecs)s", "%(process)d", "%(process)-9ld"),
        *("%(levelname)8.3s", "%(name)r", "%(module)s", "%(msg)s", "%(user_identity)s"),
        *("%(project)s", "%(version)s", "%(request_id)s", "%(global_request_id)s", "%(user)s"),
        *("%(instance)s", "%(resource)s", "%(roles)s", "%(is_admin)d", "%(message)s"),
        *("%(created)f", "%(args)s"),
        *("%(message).9s", "%%", "%%(name)s", "100%%", " [", "] "),
    )
)
USUAL = st.sampled_from([DEFAULTS.logging_context_format_string])
FORMATS = (
    USUAL
    | st.lists(FIELDS, min_size=1, max_size=6).map("".join)
    | st.lists(FIELDS | st.just(OF_EACH_RECORD), min_size=1, max_size=6).map("".join)
)
IDENTITIES = st.sampled_from(
    (
        DEFAULTS.logging_user_identity_format,
        "%(user)s %(request_id)s",
        "%(user)s%%",
        "%(roles)s %(tenant)s %(process)s",
        "",
    )
)
MOMENTS = st.floats(0, 2e9) | st.sampled_from((0.0, 1e9, 1e9 + 0.999999, 1e9 + 1))


@st.composite
def answers(draw: st.DrawFn) -> Answer:
    request = _Context("req-" + draw(st.text("0-f", max_size=4)), draw(TEXTS | st.none()))
    request.user_id = draw(st.none() | TEXTS)
    request.project_id = draw(st.none() | TEXTS)
    client, method, uri = draw(TEXTS), draw(TEXTS), draw(TEXTS | st.just("/" * 100))
    return Answer(
        request, client, method, uri, "/", draw(TEXTS), "200", draw(TEXTS), 0.1, draw(MOMENTS)
    )


ANSWERS = st.lists(answers(), min_size=2, max_size=8)
OPTIONS = st.fixed_dictionaries(
    {
        "logging_context_format_string": FORMATS,
        "logging_user_identity_format": IDENTITIES,
        "log_date_format": st.sampled_from(("%Y-%m-%d %H:%M:%S", "%H%%", "")),
    }
)


class Stream(io.TextIOWrapper):
    """A stream that keeps the text of each write."""

    def __init__(self, encoding: str) -> None:
        super().__init__(io.BytesIO(), encoding)
        self.texts: list[str] = []

    def write(self, text: str) -> int:
        self.texts.append(text)
        return super().write(text)

    def content(self) -> bytes:
        self.flush()
        content: bytes = self.buffer.getvalue()  # type: ignore[attr-defined]
        return content


@contextmanager
def only_handler(options: dict[str, str], encoding: str) -> Iterator[Stream]:
    """The stream to which the request log is written, and no other."""
    conf = cfg.ConfigOpts()
    log.register_options(conf)
    conf([], default_config_files=[], default_config_dirs=[])
    for name, value in options.items():
        conf.set_override(name, value)
    stream = Stream(encoding)
    handler = logging.StreamHandler(stream)
    handler.setFormatter(log_lines.Lines(conf, "placement"))
    before = REQUEST_LOG.propagate, REQUEST_LOG.level
    REQUEST_LOG.propagate = False
    REQUEST_LOG.setLevel(logging.INFO)
    REQUEST_LOG.addHandler(handler)
    try:
        yield stream
    finally:
        REQUEST_LOG.removeHandler(handler)
        REQUEST_LOG.propagate, REQUEST_LOG.level = before


@given(ANSWERS, OPTIONS, st.sampled_from(("utf-8", "ascii", "latin-1")))
def test_many_lines_at_once_are_those_of_logging(
    answered: Sequence[Answer], options: dict[str, Any], encoding: str
) -> None:
    check_lines(answered, options, encoding)


@pytest.mark.parametrize("identity", ["%(user)s", "%(user)s %(request_id)s"])
@pytest.mark.parametrize(
    "line",
    [
        "%(user_identity)s",
        "%(msg)s %(process)-9ld %%(name)s 100%% %(message)s",
        "%(args)s %(created)f",
        "%(isotime)s",
    ],
)
def test_formats_show_what_answers_have_in_common_and_of_their_own(
    line: str, identity: str
) -> None:
    answered = [
        Answer(_Context(f"req-{n}", None), "::1", "GET", "/x", "/x", "-", "200", "26", 0.1, n)
        for n in (1.5, 2.75)
    ]
    options = {
        "logging_context_format_string": line,
        "logging_user_identity_format": identity,
        "log_date_format": "%H",
    }
    check_lines(answered, options, "utf-8")


def test_each_line_may_show_when_its_answer_was_since_the_start() -> None:
    answered = [
        Answer(_Context("req-1", None), "::1", "GET", "/x", "/x", "-", "200", "26", 0.1, moment)
        for moment in (1.5, 2.75)
    ]
    with only_handler({"logging_context_format_string": "%(relativeCreated)f"}, "utf-8") as stream:
        request_log.record(answered)
    first, second = map(float, stream.content().split())
    assert second - first == pytest.approx(1250)


def check_lines(answered: Sequence[Answer], options: dict[str, Any], encoding: str) -> None:
    """Compare the lines of answers, written at once, with those that a filter sees one by one."""
    filtered_records: list[logging.LogRecord] = []

    def let_pass(record: logging.LogRecord) -> bool:
        filtered_records.append(record)
        return True

    with silent_errors():
        with only_handler(options, encoding) as at_once:
            request_log.record(answered)
        with only_handler(options, encoding) as one_by_one:
            REQUEST_LOG.addFilter(let_pass)
            try:
                request_log.record(answered)
            finally:
                REQUEST_LOG.removeFilter(let_pass)
    assert at_once.content() == one_by_one.content()
    line = options["logging_context_format_string"]
    identity = options["logging_user_identity_format"]
    shows_more = OF_EACH_RECORD in line or "request_id" in identity
    if options["log_date_format"] and not shows_more:
        is_at_once = len(at_once.texts) < len(answered)
        assert is_at_once == all(map(str.isascii, one_by_one.texts))
    assert [record.created for record in filtered_records] == [
        answer.answered_at for answer in answered
    ]


@pytest.fixture
def two_answers() -> list[Answer]:
    return [
        Answer(_Context(f"req-{n}", None), "::1", "GET", f"/{n}", "/", "-", "200", "26", 0.1, n)
        for n in (1, 2)
    ]


class Handler(logging.StreamHandler[io.StringIO]):
    """A handler of an operator, which gives each record to a function instead of writing it."""

    def __init__(self, see: Callable[[logging.LogRecord], object]) -> None:
        super().__init__(io.StringIO())
        self.emit = see  # type: ignore[assignment,method-assign]
        # so that it differs by its class alone
        self.setFormatter(REQUEST_LOG.handlers[-1].formatter)


See = Callable[[logging.LogRecord], logging.LogRecord]


def of_a_factory(see: See, monkeypatch: pytest.MonkeyPatch) -> None:
    def make(*arguments: Any) -> logging.LogRecord:
        return see(logging.LogRecord(*arguments))

    monkeypatch.setattr(logging, "_logRecordFactory", make)


def of_a_filter(see: See, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(REQUEST_LOG, "filters", [see])


def of_a_filter_of_a_handler(see: See, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(REQUEST_LOG.handlers[-1], "filters", [see])


def of_a_handler(see: See, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(REQUEST_LOG, "handlers", [*REQUEST_LOG.handlers, Handler(see)])


def of_a_handler_further_up(see: See, monkeypatch: pytest.MonkeyPatch) -> None:
    parent = logging.getLogger("placement_server")
    assert REQUEST_LOG.parent is parent
    monkeypatch.setattr(parent, "handlers", [Handler(see)])
    monkeypatch.setattr(parent, "propagate", False)
    monkeypatch.setattr(REQUEST_LOG, "propagate", True)


@pytest.mark.parametrize(
    "look",
    [of_a_factory, of_a_filter, of_a_filter_of_a_handler, of_a_handler, of_a_handler_further_up],
)
def test_each_record_is_seen_by_code_of_operators(
    look: Callable[[See, pytest.MonkeyPatch], None],
    two_answers: Sequence[Answer],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    messages: list[str] = []

    def see(record: logging.LogRecord) -> logging.LogRecord:
        messages.append(record.getMessage())
        return record

    with only_handler({}, "utf-8"), monkeypatch.context() as patch:
        look(see, patch)
        request_log.record(two_answers)
    assert [message.split()[2] for message in messages] == ['/1"', '/2"']


def test_each_handler_writes_lines_of_its_own_format(two_answers: Sequence[Answer]) -> None:
    formats = [{"logging_context_format_string": f"{name} %(request_id)s"} for name in "ab"]
    with only_handler(formats[0], "utf-8") as first, only_handler(formats[1], "utf-8") as second:
        request_log.record(two_answers)
    assert first.content() == b"a req-1\na req-2\n"
    assert second.content() == b"b req-1\nb req-2\n"


def test_a_log_of_warnings_has_no_answers(two_answers: Sequence[Answer]) -> None:
    with only_handler({}, "utf-8") as stream:
        REQUEST_LOG.setLevel(logging.WARNING)
        for count in (1, 2):
            request_log.record(two_answers[:count])
    assert stream.content() == b""


@pytest.fixture(scope="module", autouse=True)
def request_of_this_thread() -> Iterator[None]:
    """Leave the request of this thread as it is."""
    before = context.get_current()
    yield
    context._request_store.context = before


@contextmanager
def silent_errors() -> Iterator[None]:
    """Lines that cannot be written are left out, without a report."""
    logging.raiseExceptions = False
    try:
        yield
    finally:
        logging.raiseExceptions = True


@given(st.lists(st.integers(1, 3000), min_size=2, max_size=40))
def test_writes_are_few_and_whole_on_a_pipe_of_several_workers(sizes: Sequence[int]) -> None:
    with only_handler({}, "utf-8") as stream:
        answered = [
            Answer(_Context("req-1", None), "-", "GET", "/" * n, "/", "-", "200", "26", 0.1, 1.0)
            for n in sizes
        ]
        request_log.record(answered)
    # two writes that follow one another have more than one takes; a line has 250 beside its URI
    assert len(stream.texts) <= 1 + 2 * (sum(sizes) + 250 * len(sizes)) / select.PIPE_BUF
    assert all(len(text) <= select.PIPE_BUF for text in stream.texts)
    lines = stream.content().decode().splitlines()
    assert [line.count("/") for line in lines] == sizes
