"""Answers of HTTP/1.1, read strictly, and what is wrong with them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

_STATUS: Final = re.compile(rb"HTTP/1\.[01] (\d{3}) [ -~]*")
_FIELD: Final = re.compile(rb"([!-9;-~]+): ?([ -~\t]*)")
_SIZE: Final = re.compile(rb"[0-9A-Fa-f]+")
_DEFECTS: Final = frozenset({500, 502, 504})


class MalformedAnswer(ValueError):
    """The bytes are not answers."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer; field names are in lower case."""

    status: int
    fields: dict[bytes, bytes]
    body: bytes

    @property
    def last(self) -> bool:
        """Whether the server closes the connection after it."""
        return self.fields.get(b"connection", b"").lower() == b"close"


def answers(received: bytes) -> Iterator[Answer]:
    """Split what a server sent until it closed the connection.

    :raises MalformedAnswer: it is not a sequence of answers.
    """
    while received:
        head, end, rest = received.partition(b"\r\n\r\n")
        status, *lines = head.split(b"\r\n")
        code = _STATUS.fullmatch(status)
        parsed = [_FIELD.fullmatch(line) for line in lines]
        if not end or code is None or None in parsed:
            raise MalformedAnswer(f"not the head of an answer: {head[:300]!r}")
        fields = {field[1].lower(): field[2] for field in parsed if field}
        if code[1] == b"100":
            received = rest
            continue
        body, received = _body(fields, rest)
        yield Answer(int(code[1]), fields, body)


def _body(fields: dict[bytes, bytes], rest: bytes) -> tuple[bytes, bytes]:
    if b"transfer-encoding" in fields:
        body = b""
        while True:
            size, _, rest = rest.partition(b"\r\n")
            if not _SIZE.fullmatch(size):
                raise MalformedAnswer(f"not the size of a chunk: {size[:300]!r}")
            number = int(size, 16)
            if rest[number : number + 2] != b"\r\n":
                raise MalformedAnswer(f"a chunk of {number} bytes does not end: {rest[-300:]!r}")
            body, rest = body + rest[:number], rest[number + 2 :]
            if not number:
                return body, rest
    length = int(fields.get(b"content-length", b"0"))
    if not rest or rest.startswith(b"HTTP/1."):
        # the answer to HEAD has the length of what GET would return
        return b"", rest
    if len(rest) < length:
        raise MalformedAnswer(f"a body of {length} bytes ends after {len(rest)}: {rest[-300:]!r}")
    return rest[:length], rest[length:]


def unanswered(got: Sequence[Answer], requests: int) -> str | None:
    """What is wrong with the number of answers to proper requests; None where nothing is.

    The server may close the connection after an answer, and then says so in it.
    """
    if len(got) == requests or (len(got) < requests and got and got[-1].last):
        return None
    return f"{len(got)} answers to {requests} requests, the last without Connection: close"


def defect(answer: Answer, *, html_is_asked_for: bool) -> str | None:
    """What no answer may be, in words; None where nothing is wrong."""
    kind, body = answer.fields.get(b"content-type", b""), answer.body
    if answer.status in _DEFECTS:
        return f"status {answer.status}: {body[:500]!r}"
    if b"html" in kind and html_is_asked_for:
        return None
    if b"html" in kind or b"<html" in body[:200].lower():
        return f"HTML: {kind!r} {body[:500]!r}"
    if answer.status < 400 or not body:
        return None
    try:
        content = json.loads(body)
    except ValueError:
        return None if kind.startswith(b"text/plain") else f"not JSON: {kind!r} {body[:500]!r}"
    # the filter in front of the application has a form of its own for 401
    if answer.status != 401 and content["errors"][0]["status"] != answer.status:
        return f"an error of another status than {answer.status}: {body[:500]!r}"
    return None
