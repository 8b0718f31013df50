"""Answers and log lines while the database fails."""

from __future__ import annotations

import json
import logging
from typing import Any, NoReturn
from wsgiref.util import setup_testing_defaults

import pytest
from sqlalchemy.exc import OperationalError

from placement_server.api.request import Request
from placement_server.api.routes import Dispatcher, Endpoint, Route
from placement_server.store.errors import ConcurrentUpdate, StoreUnavailable

SECRET = "connection to server at 10.1.2.3 failed: FATAL: no such role: placement_rw"


class FailingServer:
    """A dispatcher whose only route fails."""

    def __init__(self, error: Exception) -> None:
        self.error = error

        def fail(_request: Request) -> NoReturn:
            raise self.error

        services: Any = None
        self._dispatcher = Dispatcher(services, {"/x": Route("/x", {"GET": Endpoint(fail)})})

    def get(self, query: str = "") -> tuple[str, str]:
        """Return the status and the detail of the answer."""
        environ: dict[str, Any] = {"QUERY_STRING": query}
        setup_testing_defaults(environ)
        environ |= {"PATH_INFO": "/x", "HTTP_ACCEPT": "application/json"}
        environ["placement_server.request_id"] = "r"
        statuses: list[str] = []
        body = b"".join(
            self._dispatcher(environ, lambda status, _headers, *_: statuses.append(status))
        )
        return statuses[0][:3], str(json.loads(body)["errors"][0]["detail"])


def test_an_outage_is_a_line_a_minute_per_cause_and_its_cause_no_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = FailingServer(StoreUnavailable("No connection became free"))
    server.get()
    for number in range(5):
        what = f"The database failed while reading {number}"
        server.error = StoreUnavailable(what, cause=SECRET)
        status, detail = server.get(f"number={number}")
        assert status == "503"
        assert f"{what}." in detail
        assert "10.1.2.3" not in detail
    server.error = StoreUnavailable("No place became free")
    server.get()
    lines = [record.getMessage() for record in caplog.records]
    assert [SECRET in line for line in lines] == [False, True, False]


def test_a_statement_that_the_database_refuses_is_in_the_log_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    error = OperationalError("SELECT secret FROM t", {"p": "value"}, ValueError(SECRET))
    with caplog.at_level(logging.ERROR):
        status, detail = FailingServer(error).get()
    assert status == "500"
    assert "secret" not in detail
    assert "10.1.2.3" not in detail
    assert SECRET in caplog.text


def test_a_write_that_lost_every_race_is_a_conflict_with_its_sentence() -> None:
    assert FailingServer(ConcurrentUpdate("It changed.")).get()[0] == "409"


def test_another_defect_is_named_in_the_answer() -> None:
    assert "by zero" in FailingServer(ZeroDivisionError("by zero")).get()[1]
