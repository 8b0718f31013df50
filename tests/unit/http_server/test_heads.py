"""Heads that are read in a few steps, beside gunicorn's reading of the same bytes."""

from collections.abc import Iterator
from typing import Any

import pytest
from gunicorn.config import Config
from gunicorn.http.message import Request
from gunicorn.http.unreader import IterUnreader
from hypothesis import example, given
from hypothesis import strategies as st

from placement_server.http_server.heads import LenientRequest

USUAL = (
    b"GET /provider_trees/x?a=%20b HTTP/1.1\r\nHost: h\r\nX-Auth-Token: \tt \r\nAccept: */*\r\n\r\n"
)

#: One more than are allowed.
SIX = (b"Host", b"Accept", b"Via", b"Origin", b"Referer", b"User-Agent")

CONFIG = Config()
CONFIG.set("limit_request_line", 0)
CONFIG.set("limit_request_field_size", 65_536)
CONFIG.set("limit_request_fields", 5)
CONFIG.set("forwarded_allow_ips", "")
CONFIG.set("http_parser", "python")

lines = st.sampled_from(
    [
        b"GET / HTTP/1.1",
        b"PUT /a?b=c?d HTTP/1.0",
        *(b"GET //a HTTP/1.1", b"GET /a#b HTTP/1.1", b"GET /?a#b HTTP/1.1", b"GET ? HTTP/1.1"),
        *(b"get / HTTP/1.1", b"OPTIONS * HTTP/1.1", b"GET /\xe9 HTTP/1.1", b"GET / HTTP/2.0"),
        *(b"GET  / HTTP/1.1", b"GET /a b HTTP/1.1", b"\r\nGET / HTTP/1.1", b"GET /;a=:b HTTP/1.1"),
        *(b"CONNECT a:1 HTTP/1.1", b"GET http://a/b HTTP/1.1", b"DELETE /\x7f HTTP/1.1"),
    ]
)
names = st.sampled_from(
    [
        *(b"Host", b"HOST", b"accept", b"User-Agent", b"X-Auth-Token", b"Content-Length"),
        *(b"Connection", b"Content-Type", b"Transfer-Encoding", b"Expect", b"X_Auth_Token"),
        *(b"X-Unknown", b" Host", b"Host ", b"", b"H\xf6st", b"If-None-Match"),
    ]
)
values = st.one_of(
    st.sampled_from([b"5", b"-1", b"+5", b"chunked", b"100-continue", b"close", b'"tag"', b""]),
    st.binary(max_size=6),
    st.text("ab \t\r\n:", max_size=6).map(str.encode),
)
fields = st.tuples(names, st.sampled_from([b":", b": ", b""]), values).map(b"".join)
usual_fields = st.tuples(
    st.sampled_from([b"Host", b"accept", b"X-Auth-Token", b"Connection", b"CONTENT-LENGTH"]),
    st.sampled_from([b":", b": ", b": \t"]),
    st.sampled_from([b"5", b"close", b"", b"a b", b"\xe9\xa0", b"x:y "]),
)
usual_heads = st.lists(usual_fields, max_size=5, unique_by=lambda field: field[0]).map(
    lambda usual: b"\r\n".join([b"PUT /a?b=c HTTP/1.1", *map(b"".join, usual), b"", b"rest"])
)
heads = st.one_of(
    st.tuples(lines, st.lists(fields, max_size=7)).map(
        lambda head: b"\r\n".join([head[0], *head[1], b"", b"rest"])
    ),
    usual_heads,
    st.tuples(
        usual_heads,
        st.integers(min_value=0, max_value=120),
        st.sampled_from(
            [b"\r", b"\n", b"\r\n", b" ", b"\t", b"\0", b"\x1f", b"\x7f", b"\x85", b":"]
        ),
    ).map(lambda changed: changed[0][: changed[1]] + changed[2] + changed[0][changed[1] :]),
)


class GunicornsReading(LenientRequest):
    """The same request, of which gunicorn reads every head."""

    def parse(self, unreader: Any) -> bytes:
        rest: bytes = Request.parse(self, unreader)
        return rest


def reading(kind: type[Request], pieces: Iterator[bytes]) -> dict[str, object] | str:
    """Return all that a request is, or the name of the error by which it is refused."""
    unreader = IterUnreader(pieces)
    try:
        request = kind(CONFIG, unreader, ("192.0.2.1", 1))
    except Exception as error:  # noqa: BLE001 - compared
        return type(error).__name__
    read = {
        name: value
        for name, value in vars(request).items()
        if name not in ("body", "unreader", "cfg")
    }
    return read | {
        "reader": type(request.body.reader).__name__,
        "length": getattr(request.body.reader, "length", None),
        "rest": unreader.buf.getvalue(),
    }


@given(head=heads)
@example(head=USUAL + b"rest")
@example(head=b"GET / HTTP/1.1\r\n\r\n")
@example(head=b"GET / HTTP/1.1\r\nHost: a\r\r\n\r\n")
@example(head=b"GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n")
@example(head=b"GET / HTTP/1.1\r\nHost\r\n\r\n")
@example(head=b"GET / HTTP/1.1\r\nHost : a\r\n\r\n")
@example(head=b"GET / HTTP/1.1\r\nAccept: a\x7f\r\n\r\n")
@example(head=b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n")
@example(head=b"PUT / HTTP/1.1\r\nContent-Length: 4\r\ncontent-length: 0\r\n\r\nrest")
@example(head=b"GET / HTTP/1.1\r\nVia: a\r\nAccept: a\r\nVia: b\r\n\r\n")
@example(head=b"GET / HTTP/1.1\r\n" + b"".join(name + b": a\r\n" for name in SIX) + b"\r\n")
@example(head=b"")
def test_a_head_means_what_it_means_to_gunicorn(head: bytes) -> None:
    assert reading(LenientRequest, iter([head])) == reading(GunicornsReading, iter([head]))


@pytest.mark.parametrize("cut", range(1, len(USUAL)))
def test_a_head_that_arrives_in_pieces_means_the_same(cut: int) -> None:
    pieces = [USUAL[:cut], USUAL[cut:]]
    assert reading(LenientRequest, iter(pieces)) == reading(LenientRequest, iter([USUAL]))


def test_usual_heads_are_not_left_to_gunicorn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(Request, "parse")
    request = LenientRequest(CONFIG, IterUnreader(iter([USUAL])), ("192.0.2.1", 1))
    assert (request.method, request.path, request.query) == ("GET", "/provider_trees/x", "a=%20b")
    assert request.headers == [("HOST", "h"), ("X-AUTH-TOKEN", "t"), ("ACCEPT", "*/*")]
