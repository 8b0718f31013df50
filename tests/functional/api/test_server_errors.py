"""Answers of the HTTP server before the application has a request."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .served import ServerProcess

SECRET = b"s3cret-token"
HOST = b"Host: x\r\nX-Auth-Token: admin\r\nX-Service-Token: " + SECRET + b"\r\n"
FRAMINGS = {
    "a length": [f"Content-Length: {length}" for length in ("hi mom", "-", "0x10", "1 2", "+5")],
    "two lengths": ["Content-Length: 5\r\nContent-Length: 6"],
    "a name with a blank": ["Content-Length : 5"],
    "another coding": [
        "Transfer-Encoding: identity",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
    ],
}
BAD = {
    "no request line": (b"\x16\x03\x01" + SECRET + b"\r\n\r\n", 400),
    "a bad method": (b"G\x00T" + SECRET + b" / HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "a bad version": (b"GET / HTTP/" + SECRET + b"\r\n" + HOST + b"\r\n", 400),
    "a bad header name": (b"GET / HTTP/1.1\r\n" + HOST + SECRET + b" x: y\r\n\r\n", 400),
    "no colon": (b"GET / HTTP/1.1\r\n" + HOST + SECRET + b"\r\n\r\n", 400),
    "a folded header": (b"GET / HTTP/1.1\r\n" + HOST + b"A: b\r\n " + SECRET + b"\r\n\r\n", 400),
    **{
        f"{name}: {framing}": (
            f"POST / HTTP/1.1\r\n{framing}\r\n".encode() + HOST + b"\r\nhello",
            400,
        )
        for name, framings in FRAMINGS.items()
        for framing in framings
    },
    # Without its end: a longer one that came at once would be read whole, and answered.
    "a long header": ((b"GET / HTTP/1.1\r\n" + HOST + b"A: " + SECRET).ljust(131_072, b"x"), 431),
    "many headers": (
        b"GET / HTTP/1.1\r\n" + HOST + b"A: " + SECRET + b"\r\n" + b"A: b\r\n" * 200 + b"\r\n",
        431,
    ),
    "a transfer coding": (
        b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: " + SECRET + b"\r\n\r\n",
        400,
    ),
    "a long request line": (b"GET /" + SECRET + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n", 414),
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path_factory.mktemp("served"), "--workers", "1")
    yield server
    assert server.stop() == 0
    assert "Traceback" not in server.output
    assert SECRET.decode() not in server.output


@pytest.mark.parametrize(("request_bytes", "status"), BAD.values(), ids=BAD.keys())
def test_a_malformed_request_is_refused_without_what_was_sent(
    served: ServerProcess, request_bytes: bytes, status: int
) -> None:
    head, _, body = served.exchange(request_bytes).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert b"connection: close" in head.lower()
    assert SECRET not in body
    assert SECRET not in head


@pytest.mark.parametrize(
    "framing",
    [
        b"Content-Length: 1e3\r\n\r\n",
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
    ids=["a bad length", "two framings"],
)
def test_what_follows_a_body_of_unclear_length_is_not_taken_for_a_request(
    served: ServerProcess, framing: bytes
) -> None:
    smuggled = b"GET /resource_classes HTTP/1.1\r\n" + HOST + b"\r\n"
    received = served.exchange(b"POST /traits HTTP/1.1\r\n" + HOST + framing + smuggled)
    assert received.count(b"HTTP/1.1 ") == 1
    assert b"VCPU" not in received


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET /resource_providers HTTP/1.1\nHost: x\nX-Auth-Token: admin\nConnection: close\n\n",
        b"GET /resource_providers HTTP/1.1\r\nHost: y\r\nConnection: close\r\n" + HOST + b"\r\n",
        b"GET /resource_providers HTTP/1.1\r\nExpect: 200-ok\r\nConnection: close\r\n"
        + HOST
        + b"\r\n",
    ],
    ids=["bare LF", "two hosts", "an unknown expectation"],
)
def test_what_stricter_servers_refuse_is_answered(
    served: ServerProcess, request_bytes: bytes
) -> None:
    assert served.exchange(request_bytes).startswith(b"HTTP/1.1 200 ")


def test_two_hosts_are_joined_in_the_location_of_the_answer(served: ServerProcess) -> None:
    answer = served.exchange(
        b"PUT /traits/CUSTOM_X HTTP/1.1\r\nHost: one\r\nHost: two\r\nX-Auth-Token: admin\r\n"
        b"OpenStack-API-Version: placement 1.6\r\nConnection: close\r\n\r\n"
    )
    assert b"\r\nlocation: http://one,two/traits/CUSTOM_X\r\n" in answer


def test_a_body_in_malformed_chunks_is_refused(served: ServerProcess) -> None:
    answer = served.exchange(
        b"POST /resource_providers HTTP/1.1\r\n"
        + HOST
        + b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        + SECRET
        + b"\r\n"
    )
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert SECRET not in answer
