"""Answers that no placement gives: the menu of a server that wants memory, time or a token.

A lie is written to the connection as it is, so that it can break HTTP too.
"""

from __future__ import annotations

import itertools
import json
import threading
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final

MIB: Final = 2**20
BOMB_MIB: Final = 15 * 1024
DRIP: Final = 0.2
"""Seconds between two bytes that drip: far below any timeout."""

DEPTHS: Final = (100_000, 101)
RETRY_AFTER: Final = {
    "a day": "86400",
    "negative": "-5",
    "huge": "9" * 400,
    "a date far ahead": "Fri, 31 Dec 9999 23:59:59 GMT",
    "a date beyond dates": "Fri, 31 Dec 99999 23:59:59 GMT",
    "text": "when I am ready",
    "empty": "",
}


@dataclass(frozen=True)
class Conversation:
    """One request that is lied to.

    :ivar send: writes bytes to the connection; OSError once the client is gone.
    :ivar path: what was asked for.
    :ivar elsewhere: URL of another server, which listens for tokens.
    :ivar over: set when the liar ends.
    """

    send: Callable[[bytes], Any]
    path: str
    elsewhere: str
    over: threading.Event


Lie = Callable[[Conversation], None]


@dataclass(frozen=True)
class Entry:
    """One lie of the menu.

    :ivar words: a regular expression for what the error says about it.
    :ivar exit_status: with which a start of the agent ends; None: the start waits.
    :ivar seconds: the client's timeout: one second where that is what ends the lie, and enough for
        a busy machine where it is not.
    """

    tell: Lie
    words: str
    exit_status: int | None = None

    @property
    def seconds(self) -> int:
        return 1 if self.words == LATE else 30


def answer(status: str, body: bytes, **headers: str) -> bytes:
    """A whole answer; a header given as "" is left out."""
    named = {
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "Connection": "close",
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    lines = [f"HTTP/1.1 {status}", *(f"{n}: {v}" for n, v in named.items() if v)]
    return "\r\n".join([*lines, "", ""]).encode() + body


def says(body: Any, status: str = "200 OK", **headers: str) -> Lie:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return lambda to: to.send(answer(status, raw, **headers))


@cache
def packed_spaces(wbits: int) -> tuple[bytes, bytes]:
    """How a compressed stream begins, and a piece that unpacks to a MiB and may be repeated."""
    packer = zlib.compressobj(9, wbits=wbits)
    spaces = b" " * MIB
    begun = packer.compress(b'{"versions": [') + packer.flush(zlib.Z_FULL_FLUSH)
    piece = packer.compress(spaces) + packer.flush(zlib.Z_FULL_FLUSH)
    return begun, piece


def bomb(to: Conversation, *, encoding: str, wbits: int, chunked: bool = False) -> None:
    """15 GiB in 15 MiB; in chunks, without end."""
    begun, piece = packed_spaces(wbits)
    length = len(begun) + BOMB_MIB * len(piece)
    framing = {"Content_Length": str(length)}
    if chunked:
        framing = {"Content_Length": "", "Transfer_Encoding": "chunked"}
    to.send(answer("200 OK", b"", **framing, Content_Encoding=encoding))
    for part in itertools.chain(
        [begun], itertools.repeat(piece) if chunked else [piece] * BOMB_MIB
    ):
        to.send(b"%x\r\n%s\r\n" % (len(part), part) if chunked else part)


def plain_flood(to: Conversation) -> None:
    """Chunks without end, as they are."""
    to.send(answer("200 OK", b"", Content_Length="", Transfer_Encoding="chunked"))
    while True:
        to.send(b"100000\r\n" + b" " * MIB + b"\r\n")


def endless_chunk_size(to: Conversation) -> None:
    """The line that says how long a chunk is does not end."""
    to.send(answer("200 OK", b"", Content_Length="", Transfer_Encoding="chunked"))
    while True:
        to.send(b"0" * MIB)


def drips(to: Conversation, *, begun: bytes, drop: bytes) -> None:
    to.send(begun)
    while not to.over.wait(DRIP):
        to.send(drop)


def silence(to: Conversation) -> None:
    to.over.wait()


def deep(depth: int) -> bytes:
    """Lists in lists; the object around them is the first level."""
    return b'{"versions": ' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"


def redirects(to: Conversation, *, status: str, away: bool) -> None:
    """To another server, or to itself without end."""
    location = f"{to.elsewhere}{to.path}" if away else to.path
    to.send(answer(status, b"", Location=location))


def redirects_with_a_bomb(to: Conversation) -> None:
    begun, piece = packed_spaces(31)
    length = str(len(begun) + BOMB_MIB * len(piece))
    to.send(
        answer("302 Found", b"", Location=to.path, Content_Length=length, Content_Encoding="gzip")
    )
    to.send(begun)
    for _ in range(BOMB_MIB):
        to.send(piece)


VERSION: Final = {"id": "v1.0", "min_version": "1.0", "max_version": "1.39"}
HONEST: Final = json.dumps({"versions": [VERSION], "resource_providers": []}).encode()
LARGE: Final = "is more than 64 MiB|chunk size line exceeded"
LATE: Final = "timed out"
NOT_THAT: Final = "something that is not"
REJECTED: Final = 3


def _menu() -> dict[str, Entry]:
    lies = {
        f"a redirect {status} elsewhere": Entry(
            partial(redirects, status=f"{status} Moved", away=True), "Redirects are followed within"
        )
        for status in (301, 302, 303, 305, 307, 308)
    }
    lies |= {
        "a gzip bomb": Entry(partial(bomb, encoding="gzip", wbits=31), LARGE),
        "a deflate bomb": Entry(partial(bomb, encoding="deflate", wbits=15), LARGE),
        "a gzip bomb in chunks without end": Entry(
            partial(bomb, encoding="gzip", wbits=31, chunked=True), LARGE
        ),
        "chunks without end": Entry(plain_flood, LARGE),
        "a chunk size without end": Entry(endless_chunk_size, LARGE),
        "a redirect whose body is a bomb": Entry(redirects_with_a_bomb, LARGE),
        "many small objects": Entry(says(b"[" + b"{}," * 2_000_000 + b"{}]"), "lists and objects"),
        "an integer of 5,000 digits": Entry(says(_with_number("9" * 5000)), "integer of 5000 dig"),
        "an integer beyond 64 bits": Entry(says(_with_number("9" * 30)), "integer of 30 digits"),
        "a float beyond floats": Entry(says(_with_number("1e999")), "too large"),
        "NaN": Entry(says(_with_number("NaN")), "NaN"),
        "Infinity": Entry(says(_with_number("-Infinity")), "-Infinity"),
        "wrong types": Entry(
            says({"versions": 7, "resource_providers": {"uuid": 1}}), NOT_THAT, REJECTED
        ),
        "a number": Entry(says(b"17"), NOT_THAT, REJECTED),
        "a redirect without end": Entry(
            partial(redirects, status="307 Temporary Redirect", away=False), "more than 3 times"
        ),
        "a redirect to nothing": Entry(
            says(b"", "302 Found", Location="http://[nowhere"), "Redirects are followed within"
        ),
        "headers that drip": Entry(
            partial(drips, begun=b"HTTP/1.1 200 OK\r\nX-Drop: ", drop=b"o"), LATE
        ),
        "a status line that drips": Entry(partial(drips, begun=b"HTTP/1.1 200 ", drop=b"O"), LATE),
        "interim answers that drip": Entry(
            partial(drips, begun=b"", drop=b"HTTP/1.1 100 Continue\r\n\r\n"), LATE
        ),
        "a body that drips": Entry(
            partial(drips, begun=answer("200 OK", b"", Content_Length="100000"), drop=b" "),
            LATE,
        ),
        "a body without end that drips": Entry(
            partial(drips, begun=answer("200 OK", b"", Content_Length=""), drop=b" "), LATE
        ),
        "silence": Entry(silence, LATE),
        "half a body": Entry(says(HONEST[:20], Content_Length="4000"), "(Connection|Read)"),
        "a length that is too short": Entry(says(HONEST, Content_Length="20"), NOT_THAT, REJECTED),
        "a length that is text": Entry(says(HONEST[:20], Content_Length="few"), NOT_THAT, REJECTED),
        "two lengths": Entry(says(HONEST, Content_Length="20, 30"), "Content-Length"),
        "a login page": Entry(
            says(b"<html>log in</html>", Content_Type="text/html"), NOT_THAT, REJECTED
        ),
        "an empty body": Entry(says(b""), NOT_THAT, REJECTED),
        "a wrong content encoding": Entry(
            says(b"{}", Content_Encoding="gzip"), "Content-Encoding 'gzip'"
        ),
        "a content encoding nobody knows": Entry(
            says(zlib.compress(HONEST), Content_Encoding="snappy"), NOT_THAT, REJECTED
        ),
        "a wrong charset": Entry(
            says("{}".encode("utf-16"), Content_Type="application/json; charset=utf-16"),
            NOT_THAT,
            REJECTED,
        ),
        "bytes that are no text": Entry(
            says(b'{"versions": "\xff\xfe"}', Content_Type="application/json; charset=klingon"),
            NOT_THAT,
            REJECTED,
        ),
    }
    lies |= {
        f"JSON {depth} levels deep": Entry(says(deep(depth)), "deeper than 100") for depth in DEPTHS
    }
    lies |= {
        f"Retry-After: {name}": Entry(says({}, "503 Busy", Retry_After=value), "503")
        for name, value in RETRY_AFTER.items()
    }
    return lies


def _with_number(number: str) -> bytes:
    provider = {"uuid": "5a1c3e0e-0000-4000-8000-000000000001", "name": "n", "generation": 0}
    document = {"versions": [VERSION], "resource_providers": [provider]}
    return json.dumps(document).replace('"generation": 0', f'"generation": {number}').encode()


MENU: Final = _menu()
_KINDS: Final = {(lie.words, lie.exit_status): name for name, lie in reversed(MENU.items())}
A_FEW: Final = list(_KINDS.values())
"""The first lie of each kind of error."""
BOMBS: Final = [name for name, lie in MENU.items() if lie.words == LARGE]
