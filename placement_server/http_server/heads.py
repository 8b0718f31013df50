"""Heads of requests: the usual ones read in a few steps, all others by gunicorn."""

from __future__ import annotations

import re
from typing import Any, Final

from gunicorn.http.body import Body, LengthReader
from gunicorn.http.message import Request

#: Bytes of a request line; a longer one is 414.
LONGEST_REQUEST_LINE: Final = 1024 * 1024

#: Bytes of a head that is read in a few steps; below every limit of a line.
_LONGEST_USUAL_HEAD: Final = 8192

_USUAL_LINE: Final = re.compile(
    r"(GET|PUT|POST|DELETE|HEAD|OPTIONS) "
    r"((/(?!/)[!\"$->@-~]*)(?:\?([!\"$-~]*))?) "
    r"HTTP/1\.([01])"
)

#: Control characters that no field may have, and ends of lines that are not CRLF.
_BAD_CHARACTER: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)|(?<!\r)\n")

#: Fields that need nothing but their value. Expect, Transfer-Encoding and names with underscores
#: are gunicorn's to judge.
_USUAL_NAMES: Final = {
    name.lower(): name.upper()
    for name in (
        *("Accept", "Accept-Encoding", "Accept-Language", "Connection", "Content-Length"),
        *("Content-Type", "Forwarded", "Host", "If-None-Match", "Origin"),
        *("OpenStack-API-Version", "Referer", "User-Agent", "Via"),
        *("X-Auth-Token", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Port"),
        *("X-Forwarded-Prefix", "X-Forwarded-Proto", "X-OpenStack-Request-ID", "X-Real-IP"),
        *("X-Roles", "X-Service-Token", "traceparent", "tracestate"),
    )
}


class LenientRequest(Request):  # type: ignore[misc]
    """A request whose first line may be long and whose Content-Length may be nonsense.

    Candidate queries are longer than gunicorn's largest limit for that line, so the limit is
    `LONGEST_REQUEST_LINE`. A nonsensical length is answered by the application, in the form of its
    other errors. The end of the body is unknown then, so no body is read and the connection is
    closed after the answer: nothing behind it is taken for another request.

    A head of well-known fields that has arrived as a whole is read here, which takes a fifth of
    gunicorn's steps. Whatever has anything unusual is gunicorn's to read or to refuse.
    """

    def parse(self, unreader: Any) -> bytes:
        received_bytes: bytes = unreader.read()
        end = received_bytes.find(b"\r\n\r\n")
        if 0 < end <= _LONGEST_USUAL_HEAD and self._is_usual(
            received_bytes[:end].decode("latin-1")
        ):
            return received_bytes[end + 4 :]
        unreader.unread(received_bytes)
        rest: bytes = super().parse(unreader)
        return rest

    def _is_usual(self, head: str) -> bool:
        """Take over a head that has nothing unusual, and return whether that is so."""
        line, *fields = head.split("\r\n")
        match = _USUAL_LINE.fullmatch(line)
        if match is None or len(fields) > self.limit_request_fields or _BAD_CHARACTER.search(head):
            return False
        headers: dict[str, str] = {}
        for field in fields:
            name, colon, value = field.partition(":")
            usual_name = _USUAL_NAMES.get(name.lower())
            if usual_name is None or not colon:
                return False
            headers[usual_name] = value.strip(" \t")
        if len(headers) < len(fields):
            # repeated
            return False
        self.method, self.uri, self.path, query, minor = match.groups()
        self.query, self.fragment = query or "", ""
        self.version = (1, int(minor))
        self.headers = list(headers.items())
        return True

    def read_line(self, unreader: Any, buf: Any, limit: int = 0) -> Any:
        return super().read_line(unreader, buf, limit or LONGEST_REQUEST_LINE)

    def set_body_reader(self) -> None:
        lengths = [value for name, value in self.headers if name == "CONTENT-LENGTH"]
        if len(lengths) == 1 and not _is_length(lengths[0]) and not self._is_framed():
            self.body = Body(LengthReader(self.unreader, 0))
            self.force_close()
            return
        super().set_body_reader()

    def _is_framed(self) -> bool:
        return any(name == "TRANSFER-ENCODING" for name, _ in self.headers)


def _is_length(value: Any) -> bool:
    return str(value).isascii() and str(value).isdigit()
