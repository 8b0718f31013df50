"""Answers of the HTTP server before the application has a request."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator

import pytest

from .served import Served

SECRET = b"s3cret-token"
HOST = b"Host: x\r\nX-Auth-Token: " + SECRET + b"\r\n"
BAD = {
    "no request line": (b"\x16\x03\x01" + SECRET + b"\r\n\r\n", 400),
    "a bad method": (b"G\x00T" + SECRET + b" / HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "a bad version": (b"GET / HTTP/" + SECRET + b"\r\n" + HOST + b"\r\n", 400),
    "a bad header name": (b"GET / HTTP/1.1\r\n" + HOST + SECRET + b" x: y\r\n\r\n", 400),
    "no colon": (b"GET / HTTP/1.1\r\n" + HOST + SECRET + b"\r\n\r\n", 400),
    "a folded header": (b"GET / HTTP/1.1\r\n" + HOST + b"A: b\r\n " + SECRET + b"\r\n\r\n", 400),
    "two lengths": (
        b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nx",
        400,
    ),
    "a bad chunk": (
        b"POST /resource_providers HTTP/1.1\r\n"
        + HOST
        + b"Transfer-Encoding: chunked\r\n\r\n"
        + SECRET
        + b"\r\n",
        400,
    ),
    "a long header": (
        b"GET / HTTP/1.1\r\n" + HOST + b"A: " + SECRET + b"x" * 70_000 + b"\r\n\r\n",
        431,
    ),
    "many headers": (
        b"GET / HTTP/1.1\r\n" + HOST + b"A: " + SECRET + b"\r\n" + b"A: b\r\n" * 200 + b"\r\n",
        431,
    ),
    "an expectation": (b"GET / HTTP/1.1\r\n" + HOST + b"Expect: " + SECRET + b"\r\n\r\n", 417),
    "a transfer coding": (
        b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: " + SECRET + b"\r\n\r\n",
        501,
    ),
    "a long request line": (b"GET /" + SECRET + b"x" * 1_100_000 + b" HTTP/1.1\r\n\r\n", 414),
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    server = Served(tmp_path_factory.mktemp("served"), "--workers", "1")
    yield server
    assert server.stop() == 0
    assert "Traceback" not in server.output
    assert SECRET.decode() not in server.output


@pytest.mark.parametrize(("request_bytes", "status"), BAD.values(), ids=BAD.keys())
def test_it_is_an_error_of_the_api_with_a_request_id_and_without_what_was_sent(
    served: Served, request_bytes: bytes, status: int
) -> None:
    head, _, body = served.exchange(request_bytes).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    headers = dict(re.findall(r"^([\w-]+): (.*?)\r?$", head.decode().lower(), re.MULTILINE))
    assert headers["content-type"] == "application/json"
    assert int(headers["content-length"]) == len(body)
    assert headers["connection"] == "close"
    (error,) = json.loads(body)["errors"]
    assert set(error) == {"status", "title", "detail", "request_id"}
    assert error["status"] == status
    assert error["request_id"] == headers["x-openstack-request-id"]
    assert re.fullmatch(r"req-[0-9a-f-]{36}", error["request_id"])
    assert SECRET not in body
    assert SECRET not in head


def test_the_log_has_the_reason_under_the_request_id(served: Served) -> None:
    request, status = BAD["an expectation"]
    _, _, body = served.exchange(request).partition(b"\r\n\r\n")
    (error,) = json.loads(body)["errors"]
    line = re.compile(
        rf"Refused a request of 127.0.0.1 with {status}: .* \[{error['request_id']}\]"
    )
    deadline = time.monotonic() + 20
    while not line.search(served.output):
        assert time.monotonic() < deadline
