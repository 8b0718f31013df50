"""Responses of handlers."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from email.utils import formatdate
from typing import Any, Final

import orjson
from msgspec import Struct

from placement_server.negotiation.microversion import Microversion

Headers = list[tuple[str, str]]

_JSON_TYPE: Final = ("content-type", "application/json")
_NO_CACHE: Final = ("cache-control", "no-cache")

STATUS_LINES: Final = {
    200: "200 OK",
    201: "201 Created",
    204: "204 No Content",
    304: "304 Not Modified",
}


class Chunks(list[bytes]):
    """A body in pieces, with a function to call when they have been sent."""

    def __init__(self, pieces: Iterable[bytes], on_sent: Callable[[], None]) -> None:
        super().__init__(pieces)
        self._on_sent = on_sent

    def close(self) -> None:
        """End the sending, as WSGI has servers do; the pieces are gone by then."""
        self.clear()
        self._on_sent()


class Response(Struct):
    """A successful response; everything else is raised as an error."""

    status: int
    body: bytes | Chunks = b""
    headers: Headers = []


def json_response(value: Any, *headers: tuple[str, str], status: int = 200) -> Response:
    """Return a response with a JSON body."""
    return Response(status, encode(value), [_JSON_TYPE, *headers])


def encode(value: Any) -> bytes:
    """Return a value as JSON."""
    try:
        return orjson.dumps(value)
    except TypeError:
        # an integer of more than 64 bits, which a client may send where any number will do
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def encoded_response(body: bytes | Chunks, *headers: tuple[str, str]) -> Response:
    """Return a response whose JSON body is encoded already."""
    return Response(200, body, [_JSON_TYPE, *headers])


def empty_response(status: int, *headers: tuple[str, str]) -> Response:
    """Return a response without a body, and so without a content type."""
    return Response(status, b"", list(headers))


def cache_headers(version: Microversion, *changes: datetime | None) -> Headers:
    """Return `cache-control` and `last-modified`, from 1.15 on.

    :param changes: when what is shown last changed; now where that is not known.
    """
    if version[1] < 15:
        return []
    moments = [change for change in changes if change is not None]
    second = int(max(moments).timestamp() if moments else time.time())
    return [("last-modified", _http_date(second)), _NO_CACHE]


def no_cache_headers(version: Microversion) -> Headers:
    """Return `cache-control` alone, from 1.15 on."""
    return [_NO_CACHE] if version[1] >= 15 else []


# of a fleet, the hosts that are asked about at a time
_http_date: Final = functools.lru_cache(maxsize=1000)(functools.partial(formatdate, usegmt=True))
