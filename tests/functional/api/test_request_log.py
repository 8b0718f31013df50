"""The line of the log and the numbers of each request, whatever the log does."""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from oslo_context import context

from placement_server.metrics import metrics
from placement_server.middleware import monitoring, observation, request_log
from placement_server.middleware.observation import ANSWERS
from placement_server.middleware.request_log import REQUEST_LOG
from tests.functional.agent.processes import eventually

from .conftest import MakeApi
from .wsgi_client import Client

RP = "/resource_providers"

RequestLines = Callable[[], list[logging.LogRecord]]


@pytest.fixture
def request_lines(caplog: pytest.LogCaptureFixture) -> RequestLines:
    """The lines of all requests that were answered since the test began."""
    ANSWERS.record_all()
    caplog.set_level(logging.INFO, logger="placement_server.requestlog")

    def lines() -> list[logging.LogRecord]:
        ANSWERS.record_all()
        return [entry for entry in caplog.records if entry.name == "placement_server.requestlog"]

    return lines


@pytest.mark.parametrize("url", ["/x%0a192.0.2.9 GET", "/traits%1b[2J", '/traits?name="%20\x1b\n'])
def test_a_request_is_one_printable_line_of_the_log(
    api: Client, request_lines: RequestLines, url: str
) -> None:
    api.get(url)
    (record,) = request_lines()
    assert record.getMessage().isprintable()
    assert record.getMessage().count('"') == 2


def test_the_line_of_a_request_shows_what_was_asked_and_answered(
    api: Client, request_lines: RequestLines
) -> None:
    length = len(api.get(RP).body)
    api.put("/traits/CUSTOM_A", version="1.6")
    api.get(RP, version="1.99")
    *lines, refused = [record.getMessage() for record in request_lines()]
    assert lines == [
        f'192.0.2.1 "GET {RP}" status: 200 len: {length} microversion: 1.39',
        '192.0.2.1 "PUT /traits/CUSTOM_A" status: 201 len: 0 microversion: 1.6',
    ]
    assert f'192.0.2.1 "GET {RP}" status: 406 len: ' in refused


def test_methods_that_a_client_makes_up_are_one_in_the_metrics(api: Client) -> None:
    before = counted(method="other")
    for method in ("GET", "MADE", "UP"):
        api(method, RP)
    ANSWERS.record_all()
    assert counted(method="other") == before + 2
    assert counted(method="MADE") == counted(method="UP") == 0


def test_formats_may_show_of_a_request_what_they_may_show_of_any_line(
    api: Client, request_lines: RequestLines
) -> None:
    shown_values: list[dict[str, Any]] = []

    def ask() -> None:
        api.get(RP, token="me:mine")
        current = context.get_current()
        assert current is not None
        shown_values.append(current.get_logging_values())

    thread = threading.Thread(target=ask, name="a thread of the server")
    thread.start()
    thread.join()
    usual = logging.LogRecord("", 0, "", 0, "", (), None)
    (record,) = request_lines()
    assert vars(record).keys() >= vars(usual).keys()
    assert record.process == usual.process
    for field in ("created", "relativeCreated"):
        assert 0 <= getattr(usual, field) - getattr(record, field) < 60_000
    assert record.msecs == int(record.created % 1 * 1000)
    [values] = shown_values
    expected = context.RequestContext(
        user_id="me", project_id="mine", request_id=values["request_id"], overwrite=False
    )
    assert values == expected.get_logging_values()


def test_each_request_has_its_own_line_in_what_keeps_lines(
    api: Client, request_lines: RequestLines
) -> None:
    api.get("/traits?name=startswith:A")
    ANSWERS.record_all()

    def traced(*arguments: Any, **keywords: Any) -> logging.LogRecord:
        record = logging.LogRecord(*arguments, **keywords)
        current = context.get_current()
        vars(record)["traced"] = current and current.request_id
        return record

    logging.setLogRecordFactory(traced)
    try:
        answers = [api.get(f"/traits?name=startswith:{letter}") for letter in "BC"]
        records = request_lines()
    finally:
        logging.setLogRecordFactory(logging.LogRecord)
    assert [record.getMessage().partition("startswith:")[2][0] for record in records] == [*"ABC"]
    assert [vars(record)["traced"] for record in records[1:]] == [
        answer.headers["x-openstack-request-id"] for answer in answers
    ]


@pytest.mark.usefixtures("request_lines")
def test_a_line_is_written_without_another_request(
    api: Client, caplog: pytest.LogCaptureFixture
) -> None:
    def is_written(line: str) -> bool:
        return line in caplog.text

    for url in ("/traits", RP, "/resource_classes", "/usages"):
        api.get(url)
        eventually(partial(is_written, f"GET {url}"), "the line is written")


@pytest.fixture
def waiting_answers(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> observation.Answers:
    """Two answers may wait to be logged, and no thread takes them; the first is logged at once."""
    caplog.set_level(logging.INFO, logger="placement_server.requestlog")
    answers = observation.Answers()
    for module in (observation, monitoring):
        monkeypatch.setattr(module, "ANSWERS", answers)
    monkeypatch.setattr(observation, "_DELAY", 600)
    monkeypatch.setattr(observation, "_MOST_ANSWERS", 2)
    return answers


@contextmanager
def full_log() -> Iterator[threading.Event]:
    """A request log that takes no line; the event is set once it has been given one."""
    go_on, is_full = threading.Event(), threading.Event()

    def wait(_record: logging.LogRecord) -> bool:
        is_full.set()
        return go_on.wait(60)

    REQUEST_LOG.addFilter(wait)
    try:
        yield is_full
    finally:
        go_on.set()
        REQUEST_LOG.removeFilter(wait)


def test_requests_wait_for_a_log_that_takes_no_more(
    api: Client, caplog: pytest.LogCaptureFixture, waiting_answers: observation.Answers
) -> None:
    api.get(RP)
    client = threading.Thread(target=lambda: [api.get(RP) for _ in range(4)])
    with full_log():
        client.start()
        client.join(0.5)
        assert client.is_alive()
    client.join()
    waiting_answers.record_all()
    assert caplog.text.count(f"GET {RP}") == 5


def test_a_request_waits_only_for_its_own_line(
    api: Client, caplog: pytest.LogCaptureFixture, waiting_answers: observation.Answers
) -> None:
    for letter in "ABCDE":
        api.get(f"/traits?name=startswith:{letter}")
    urls = [record.getMessage().split()[2] for record in caplog.records if record.args]
    assert [url.rpartition(":")[2].strip('"') for url in urls] == [*"ADE"]
    waiting_answers.record_all()
    assert caplog.text.count("GET /traits") == 5


def test_a_calm_server_answers_while_its_log_takes_no_more(
    api: Client,
    caplog: pytest.LogCaptureFixture,
    waiting_answers: observation.Answers,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(observation, "_DELAY", 0)
    monkeypatch.setattr(observation, "_MOST_ANSWERS", 9)
    first = threading.Thread(target=lambda: api.get(RP))
    others = threading.Thread(target=lambda: [api.get(RP) for _ in range(3)])
    with full_log() as is_full:
        first.start()
        assert is_full.wait(30)
        others.start()
        others.join(30)
        assert not others.is_alive()
        assert first.is_alive()
    first.join()
    waiting_answers.record_all()
    assert caplog.text.count(f"GET {RP}") == 4


@pytest.mark.usefixtures("waiting_answers")
def test_a_request_is_answered_and_logged_where_the_system_has_no_thread_for_its_line(
    api: Client, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert [api.get(RP).status for _ in range(4)] == [200] * 4
    assert caplog.text.count(f"GET {RP}") == 4


def test_a_scrape_does_not_wait_for_a_log_that_takes_no_more(
    make_api: MakeApi, waiting_answers: observation.Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = make_api(placement_server__metrics_path="/m")
    monkeypatch.setattr(monitoring, "_LOG_SECONDS", 0.05)
    for _ in range(3):
        api.get(RP)
    logging_thread = threading.Thread(target=waiting_answers.record_all)
    scrape = threading.Thread(target=lambda: api.get("/m", token=None))
    with full_log():
        logging_thread.start()
        eventually(waiting_answers._recording.locked, "an answer is being logged")
        scrape.start()
        scrape.join(30)
        assert not scrape.is_alive()
    logging_thread.join()


@pytest.fixture
def answers_of_one_moment(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> observation.Answers:
    """None is alone, so the thread logs all of them."""
    caplog.set_level(logging.INFO, logger="placement_server.requestlog")
    answers = observation.Answers()
    monkeypatch.setattr(observation, "ANSWERS", answers)
    clock = SimpleNamespace(time=float, perf_counter=time.perf_counter, sleep=time.sleep)
    monkeypatch.setattr(observation, "time", clock)
    return answers


@pytest.mark.usefixtures("answers_of_one_moment")
def test_an_answer_that_comes_while_others_are_logged_is_logged_without_another(
    api: Client, caplog: pytest.LogCaptureFixture
) -> None:
    with full_log() as is_full:
        api.get("/traits")
        assert is_full.wait(30)
        api.get("/usages")
    eventually(lambda: "GET /usages" in caplog.text, "the line is written")


# of the thread that fails
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.usefixtures("answers_of_one_moment")
def test_a_thread_that_fails_while_answers_come_has_a_successor(
    api: Client, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_recording, go_on = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    def fail(_answers: Sequence[request_log.Answer]) -> None:
        threads.append(threading.current_thread())
        is_recording.set()
        go_on.wait(60)
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(request_log, "record", fail)
        api.get("/traits")
        assert is_recording.wait(30)
        api.get("/usages")
        go_on.set()
        [thread] = threads
        thread.join(30)
    api.get(RP)
    lines = (f"GET {RP}", "GET /usages")
    eventually(lambda: all(line in caplog.text for line in lines), "the lines are written")


@pytest.fixture
def failing_filter() -> Iterator[Callable[[logging.LogRecord], bool]]:
    """A filter of an operator that fails at each line."""

    def fail(_record: logging.LogRecord) -> bool:
        raise ZeroDivisionError("of this filter")

    request_log._reported_errors.forget()
    REQUEST_LOG.addFilter(fail)
    yield fail
    REQUEST_LOG.removeFilter(fail)


def counted(**labels: str) -> float:
    """Return how many requests with these labels were counted."""
    [family] = metrics.REQUESTS.collect()
    return sum(
        sample.value
        for sample in family.samples
        if sample.name.endswith("_total") and sample.labels.items() >= labels.items()
    )


def test_a_filter_that_fails_is_reported_once_and_costs_lines_alone(
    api: Client,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    answers_of_one_moment: observation.Answers,
    failing_filter: Callable[[logging.LogRecord], bool],
) -> None:
    before = counted(route="/traits")

    def are_counted(count: int) -> bool:
        return counted(route="/traits") == before + count

    for count in (1, 2, 3):
        api.get("/traits")
        eventually(partial(are_counted, count), "it is counted")
    answers_of_one_moment.record_all()
    assert answers_of_one_moment._has_thread
    REQUEST_LOG.removeFilter(failing_filter)
    api.get("/usages")
    eventually(lambda: "GET /usages" in caplog.text, "the line is written")
    assert capsys.readouterr().err.count("ZeroDivisionError: of this filter") == 1


@pytest.mark.usefixtures("waiting_answers", "failing_filter")
def test_a_request_whose_own_line_fails_is_answered(api: Client) -> None:
    before = counted(route="/traits")
    assert api.get("/traits").status == 200
    assert counted(route="/traits") == before + 1


# the other threads of the tests are not needed in the child
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_worker_logs_its_own_answers_only(
    api: Client, caplog: pytest.LogCaptureFixture, waiting_answers: observation.Answers
) -> None:
    for _ in range(3):
        api.get("/", token=None)
    logged = caplog.text.count("GET /")
    assert logged < 3
    child = os.fork()
    if not child:
        try:
            api.get("/", token=None)
            waiting_answers.record_all()
        finally:
            os._exit(caplog.text.count("GET /") - logged)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    waiting_answers.record_all()
    assert caplog.text.count("GET /") == 3
