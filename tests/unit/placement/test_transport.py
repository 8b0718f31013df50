"""Transports that need no network."""

from datetime import UTC, datetime
from typing import NoReturn

import pytest
from keystoneauth1.exceptions import MissingAuthPlugin

from compute_agent import errors
from compute_agent.placement.transports.in_process import InProcessTransport
from compute_agent.placement.transports.keystone import KeystoneTransport
from compute_agent.placement.transports.transport import (
    ReadOnlyTransport,
    Request,
    Response,
    clock_offset,
    make_response,
)
from compute_agent.testing.transports import RecordingTransport


class Echo:
    """A WSGI callable that answers with what it was asked."""

    def __init__(self) -> None:
        self.environ: dict = {}
        self.closed = False

    def __call__(self, environ, start_response):
        self.environ = environ
        self.body = environ["wsgi.input"].read()
        start_response("201 Created", [("Content-Type", "application/json"), ("X-A", "b")])
        return self

    def __iter__(self):
        yield b'{"a"'
        yield b": 1}"

    def close(self) -> None:
        self.closed = True


class FixedTransport:
    def send(self, _request: Request) -> Response:
        return make_response(200, [], "{}")


def test_a_call_in_process_looks_to_the_server_like_any_other():
    app = Echo()
    response = InProcessTransport(app).send(
        Request("PUT", "/allocations/a%C3%A9?b=%20c", (1, 30), {"x": 1}, "req-1")
    )
    assert (response.status, response.content, response.headers["x-a"]) == (201, b'{"a": 1}', "b")
    assert app.environ["PATH_INFO"].encode("latin-1").decode() == "/allocations/aé"
    assert app.environ["QUERY_STRING"] == "b=%20c"
    assert app.environ["HTTP_OPENSTACK_API_VERSION"] == "placement 1.30"
    assert app.environ["HTTP_X_OPENSTACK_REQUEST_ID"] == "req-1"
    assert app.environ["HTTP_X_ROLES"] == "admin,service,reader"
    assert app.environ["CONTENT_TYPE"] == "application/json"
    assert app.body == b'{"x":1}'
    assert app.closed


def test_a_request_without_a_body_has_no_content_type():
    app = Echo()
    InProcessTransport(app).send(Request("GET", "/", (1, 0)))
    assert "CONTENT_TYPE" not in app.environ


def test_a_recording_keeps_requests_that_got_no_answer_too():
    def broken(method, path, body):
        if path == "/broken":
            raise errors.PlacementAPIConnectFailure("x")

    transport = RecordingTransport(FixedTransport(), before=broken)
    transport.send(Request("GET", "/fine", (1, 30)))
    with pytest.raises(errors.PlacementAPIConnectFailure):
        transport.send(Request("POST", "/broken", (1, 30), {"a": 1}))
    assert transport.requests == ["GET /fine", "POST /broken"]
    assert transport.writes == ["POST /broken"]
    assert transport.exchanges[1].response is None
    assert transport.exchanges[1].request.json == {"a": 1}
    transport.clear()
    assert transport.requests == []


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_a_read_only_transport_sends_no_write(method):
    inner = RecordingTransport(FixedTransport())
    transport = ReadOnlyTransport(inner)
    with pytest.raises(errors.PlacementError, match="this command only reads"):
        transport.send(Request(method, "/x", (1, 30)))
    assert inner.requests == []
    assert transport.send(Request("GET", "/x", (1, 30))).status == 200


@pytest.mark.parametrize("failure", [MissingAuthPlugin("no auth"), OSError("no such file")])
def test_the_hint_names_where_the_credentials_come_from(failure: Exception) -> None:
    def load() -> NoReturn:
        raise failure

    for transport, source in (
        (KeystoneTransport(load), "the options of [placement]"),
        (KeystoneTransport(load, source="cloud c in clouds.yaml"), "cloud c in clouds.yaml"),
    ):
        with pytest.raises(errors.PlacementUnauthorized, match="Check") as caught:
            transport.send(Request("GET", "/"))
        assert source in str(caught.value)


@pytest.mark.parametrize(
    ("date", "offset"),
    [("Fri, 27 Nov 2026 06:00:00 GMT", 9.5), ("nonsense", None), ("", None)],
)
def test_the_date_of_an_answer_tells_how_far_the_clock_is_ahead(
    date: str, offset: float | None
) -> None:
    now = datetime(2026, 11, 27, 6, 0, 10, tzinfo=UTC).timestamp()
    assert clock_offset(date, now) == offset
