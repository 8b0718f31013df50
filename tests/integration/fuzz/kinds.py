"""The kinds of requests, each a maker of what is sent on one connection."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from tests.integration.fuzz import document, values, world
from tests.integration.fuzz.world import ValidRequest

FIELDS: Final = (b"Content-Type", b"Accept", b"OpenStack-API-Version", b"X-Auth-Token", b"Host")
HEADERS: Final = (
    b"Content-Length: 5",
    b"Content-Length: -1",
    b"Content-Length: 1e3",
    b"Content-Length: +0",
    b"Content-Length: 99999999999999999999",
    b"Content-Length: 0\r\nContent-Length: 0",
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: gzip",
    b"Transfer-Encoding: chunked, chunked",
    b"Transfer-Encoding: xchunked",
    b"Transfer-Encoding : chunked",
    b"Expect: 100-continue",
    b"Expect: 200-ok",
    b"Connection: close",
    b"Connection: upgrade\r\nUpgrade: h2c",
    b"Host: a\r\nHost: b",
    b"Accept: text/html",
    b"Accept: */*;q=x",
    b"Accept: application/json;q=0",
    b"Accept: " + b"a/b," * 500,
    b"Content-Type: text/plain",
    b"Content-Type: application/json; charset=utf-16",
    b"Content-Type: ;",
    b'X-Compute-Agent-Report: {"period": 1e400, "bus": {"state": "up"}}',
    b'X-Compute-Agent-Report: {"period": 1, "bus": {"state": "up", "why": "\\ud800\\u0000"}, '
    b'"disabled_reason": "", "trouble": "\\u001b[2J", "place": {"address": "", "machine_id": "", '
    b'"boot_id": "", "state_path": ""}, "cells": [{"id": 99999999999999999999, "cores": []}]}',
    b"OpenStack-API-Version: placement 1.40",
    b"OpenStack-API-Version: placement latest",
    b"OpenStack-API-Version: placement 1.999999999999999999999",
    b"OpenStack-API-Version: placement x",
    b"OpenStack-API-Version: compute 2.1",
    b"OpenStack-API-Version: " + b"placement 1.1," * 300,
    b"X-Auth-Token: ",
    b"X-Auth-Token: \xff\xfe",
    b"X-Auth-Token: a:b:c",
    b"X-Roles: admin",
    b"X-Openstack-Request-Id: req-\x01",
    b"X-Openstack-Request-Id: " + b"r" * 9000,
    b"Range: bytes=0-1",
    b"Forwarded: for=x",
    b"X-Forwarded-Proto: \xc3\x28",
    b"If-None-Match: *",
    b"Cookie: " + b"c" * 9000,
    b": empty",
    b"A",
    b"A B: c",
    b"A\0: b",
    b"A: \0",
    b" folded",
    b"A: b\r\n\tc",
    b"A: b\nC: d",
    b"A:" + b"x" * 70_000,
    b"Content_Length: 3",
    b"\xffoo: bar",
    b"Max-Forwards: 0",
    b"Trailer: x",
    b"TE: trailers, deflate",
    b"\r\n".join(b"H%d: x" % number for number in range(150)),
)
METHODS: Final = (
    b"GET",
    b"HEAD",
    b"OPTIONS",
    b"TRACE",
    b"PATCH",
    b"CONNECT",
    b"get",
    b"PRI",
    b"G\0T",
    b"",
    b"X" * 300,
)
TARGETS: Final = (
    b"*",
    b"",
    b"//",
    b"/..",
    b"http://[::1/x",
    b"/%",
    b"/%00",
    b"/%ff%fe",
    b"/\xff",
    b"/a b",
    b"/#f",
    b"?",
    b"/resource_providers?" + b"a" * 20_000,
    b"/allocation_candidates?resources=" + b"VCPU:1," * 900,
    b"/traits?name=%zz",
    b"/resource_providers/" + b"9" * 5000,
    b"/usages?project_id=%c3%28",
    b"/;x?;&&=&",
)
VERSIONS: Final = (
    b"HTTP/1.1",
    b"HTTP/1.0",
    b"HTTP/0.9",
    b"HTTP/2.0",
    b"HTTP/1.10",
    b"HTTP/",
    b"http/1.1",
    b"",
)
SIZES: Final = (
    b"0",
    b"-1",
    b"g",
    b"",
    b"ffffffffffffffff",
    b"0x5",
    b"5;a=b",
    b"5" + b";x" * 400,
    b" 5",
    b"00005",
)
WORDS: Final = (
    b"GET ",
    b"POST /allocations",
    b" HTTP/1.1\r\n",
    b"\r\n",
    b"\r\n\r\n",
    b"\n\n",
    b"Host: x\r\n",
    b"\0",
    b"\x16\x03\x01\x02\x00\x01\x00",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"Content-Length: 3\r\n",
    b"{}",
)

BATCH: Final = 10
"""Requests on one connection, where a kind sends several."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """What is sent on one connection.

    :ivar pieces: sent one after the other, each in a call of its own.
    :ivar requests: how many requests that is; at most, where it is not well formed.
    :ivar well_formed: whether all of it is proper HTTP/1.1, so that each request has an answer.
    """

    pieces: tuple[bytes, ...]
    requests: int
    well_formed: bool


def _head(valid: ValidRequest, *more: bytes) -> list[bytes]:
    lines = [
        f"{valid.method} {valid.path} HTTP/1.1".encode(),
        *(b"Host: x", b"X-Auth-Token: admin"),
    ]
    if valid.version is not None:
        lines.append(b"OpenStack-API-Version: " + valid.version.encode())
    return [*lines, *more]


def _message(valid: ValidRequest, body: bytes | None) -> bytes:
    if body is None:
        return b"\r\n".join([*_head(valid), b"", b""])
    length = b"Content-Length: %d" % len(body)
    return b"\r\n".join([*_head(valid, b"Content-Type: application/json", length), b"", body])


def _mutated(dice: random.Random) -> bytes:
    """A valid request with something else in its body, path or query."""
    valid = world.request(dice)
    if valid.body is not None and dice.random() < 0.6:
        return _message(valid, values.encoded(dice, values.changed(dice, valid.body)))
    if dice.random() < 0.7:
        # as it is
        return _message(valid, None if valid.body is None else values.encoded(dice, valid.body))
    spoilt = list(valid.path)
    for _ in range(dice.randint(1, 3)):
        word = quote(dice.choice(values.TEXTS)[:300], errors="surrogatepass")
        spoilt.insert(
            dice.randrange(1, len(spoilt) + 1), dice.choice((word, "&", "/", "?", "=", ","))
        )
    return _message(ValidRequest(valid.method, "".join(spoilt), None, valid.version), None)


def mutations(dice: random.Random) -> Exchange:
    """Valid requests in which something is changed."""
    return Exchange((b"".join(_mutated(dice) for _ in range(BATCH)),), BATCH, True)


def described(dice: random.Random) -> Exchange:
    """Requests that the OpenAPI document describes, with some values that it forbids."""
    messages = []
    for _ in range(BATCH):
        valid = document.request(dice)
        body = None if valid.body is None else values.encoded(dice, valid.body)
        messages.append(_message(valid, body))
    return Exchange((b"".join(messages),), BATCH, True)


def pipelining(dice: random.Random) -> Exchange:
    """Many requests at once, of which one may be broken, cut at any place."""
    number = dice.randint(2, 3 * BATCH)
    messages = [_mutated(dice) for _ in range(number)]
    broken = dice.random() < 0.5
    if broken:
        place = dice.randrange(number)
        messages[place] = values.encoded(dice, messages[place].decode("latin-1"))
    return Exchange(_cut(dice, b"".join(messages)), number, not broken)


def _cut(dice: random.Random, text: bytes) -> tuple[bytes, ...]:
    places = sorted(dice.randrange(len(text) + 1) for _ in range(dice.choice((0, 1, 3, 8))))
    return tuple(
        text[begin:end] for begin, end in zip([0, *places], [*places, len(text)], strict=True)
    )


def chunking(dice: random.Random) -> Exchange:
    """A body in chunks, of which some are wrong."""
    valid = world.request(dice)
    body = values.encoded(dice, valid.body if valid.body is not None else {})
    wrong = dice.random() < 0.6
    text = b""
    for piece in _cut(dice, body):
        if not piece and dice.random() < 0.9:
            # a chunk of no bytes is the end
            continue
        size = dice.choice(SIZES) if wrong and dice.random() < 0.4 else b"%x" % len(piece)
        text += size + (b"\n" if wrong and dice.random() < 0.2 else b"\r\n") + piece
        text += b"" if wrong and dice.random() < 0.2 else b"\r\n"
    if not (wrong and dice.random() < 0.3):
        text += b"0\r\n" + (b"A: b\r\n" if dice.random() < 0.2 else b"") + b"\r\n"
    more = [b"Content-Type: application/json", b"Transfer-Encoding: chunked"]
    if wrong and dice.random() < 0.3:
        more.append(b"Content-Length: %d" % dice.choice((0, len(body), len(text))))
    head = b"\r\n".join([*_head(valid, *more), b"", b""])
    return Exchange(_cut(dice, head + text + _message(ValidRequest("GET", "/"), None)), 200, False)


def headers(dice: random.Random) -> Exchange:
    """A valid request with header fields that are odd, double, long or missing."""
    valid = world.request(dice)
    body = b"" if valid.body is None else values.encoded(dice, valid.body)
    lines = _head(valid, b"Content-Type: application/json", b"Content-Length: %d" % len(body))
    for _ in range(dice.choice((1, 1, 2, 4))):
        chosen = dice.choice(HEADERS)
        if dice.random() < 0.5:
            lines = [line for line in lines if not line.startswith(dice.choice(FIELDS))]
        lines.insert(dice.randint(1, max(1, len(lines))), chosen)
    return Exchange((b"\r\n".join([*lines, b"", body]),), 200, False)


def lines(dice: random.Random) -> Exchange:
    """A request line of an odd method, target or version."""
    valid = world.request(dice)
    parts = [valid.method.encode(), valid.path.encode(), b"HTTP/1.1"]
    for _ in range(dice.choice((1, 1, 2))):
        place = dice.randrange(3)
        parts[place] = dice.choice((METHODS, TARGETS, VERSIONS)[place])
    line = dice.choice((b" ", b" ", b" ", b"\t", b"  ")).join(parts)
    return Exchange((b"\r\n".join([line, *_head(valid)[1:], b"", b""]),), 200, False)


def noise(dice: random.Random) -> Exchange:
    """Bytes without sense, with some words of HTTP among them."""
    text = b"".join(
        dice.choice(WORDS) if dice.random() < 0.6 else dice.randbytes(dice.randint(1, 40))
        for _ in range(dice.randint(1, 30))
    )
    return Exchange(_cut(dice, text), 200, False)


Kind = Callable[[random.Random], Exchange]

KINDS: Final[dict[Kind, int]] = {
    mutations: 5,
    described: 5,
    pipelining: 2,
    chunking: 8,
    headers: 8,
    lines: 4,
    noise: 4,
}
"""The kinds, with how many connections of each there are among 36."""


def draw(seed: str, number: int) -> tuple[str, Exchange]:
    """Return the kind and the content of an exchange, the same for the same seed and number."""
    dice = random.Random(f"{seed}/{number}")
    (kind,) = dice.choices(list(KINDS), list(KINDS.values()))
    return kind.__name__, kind(dice)
