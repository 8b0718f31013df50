"""Strange spellings of requests: of headers, paths, queries and bodies, as odd clients send them.

The parts of a request are made by `traffic`; here the bytes are changed in which they are sent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import quote

from .draw import Draw
from .vocabulary import PROVIDERS, STRANGE_TEXTS, SentRequest

_VERSIONS = [
    "placement LATEST", "placement 1.39 ", "placement  1.20", " placement 1.10", "PLACEMENT 1.30",
    "Placement latest", "placement 1.10, compute 2.1", "compute 2.1,placement 1.38",
    "placement 1.39,placement 1.10", "placement 1.10,,", "placement 1.10,", "compute latest",
    "placement", "1.10", "latest", "", ",", "placement: 1.10", "placement/1.10", "placement1.10",
    "placement 1.10 1.11", "placement 1.+10", "placement +1.10", "placement 1.-1", "placement 1.",
    "placement .1", "placement 01.10", "placement 1.010", "placement 1_0.1", "placement 1.1e1",
    "placement 1.99999999999999999999", "placement 1,39", "placement\t1.20", "placement 1.39x",
    "placement \N{ARABIC-INDIC DIGIT ONE}.20".encode().decode("latin-1"), "placement 1.1_0",
]  # fmt: skip
_ACCEPTED = [
    "application/json;q=0", "application/json;q=0.8, text/html;q=0.9", "application/*", "*/*;q=0.1",
    "text/*", "TEXT/HTML", "application/json; charset=utf-8", "text/html;level=1", "", ";", ",",
    "text/html,", "a", "*", "*/html", "application/json;q=1.5", "application/json;q=x",
    "text/html;q=0, */*", "application/vnd.x+json", "application/json, application/json;q=0",
    "text/plain, application/json;q=0.001", "application/json;version=1", '"text/html"',
]  # fmt: skip
_CONTENT_TYPES = [
    "application/json;charset=UTF-16", "application/json ; charset=latin-1", "application/json;",
    " application/json", "application/JSON", "application/json, text/plain", "text/json", "json",
    "application/merge-patch+json", "*/*", "application/*", "multipart/form-data; boundary=x",
    "application/x-www-form-urlencoded", '"application/json"', "application/json\t;a=b",
]  # fmt: skip
_HEADERS = [
    ("If-None-Match", "*"), ("If-Match", '"x"'), ("If-Match", "*"), ("Cache-Control", "no-cache"),
    ("If-Modified-Since", "Sat, 01 Jan 2050 00:00:00 GMT"), ("Pragma", "no-cache"),
    ("If-Unmodified-Since", "Sat, 01 Jan 2000 00:00:00 GMT"), ("Range", "bytes=0-1"),
    ("If-Range", '"x"'), ("X-HTTP-Method-Override", "DELETE"), ("Accept-Language", "de"),
    ("Accept-Encoding", "gzip, identity;q=0"), ("Accept-Charset", "utf-16"), ("Prefer", "wait=1"),
    ("Content-Encoding", "gzip"), ("Content-Language", "de"), ("Content-Length", "0"),
    ("Content-Length", "x"), ("Content-Length", "-1"), ("Content-Length", "+3"),
    ("Content-Length", " 3 "), ("Content-Length", "1_0"), ("Content-Length", "1.0"),
    ("Transfer-Encoding", "identity"), ("X-Forwarded-Proto", "https"), ("Forwarded", "proto=https"),
    ("X-Forwarded-Prefix", "/x"), ("Origin", "http://x"), ("Expect", "100-continue"),
    ("OpenStack-Placement-API-Version", "1.10"), ("X-OpenStack-Nova-API-Version", "2.1"),
    ("X-OpenStack-Request-ID", "req-" + PROVIDERS[0]), ("X-OpenStack-Request-ID", "\xe9"),
    ("X-Project-Id", "p"), ("X-User-Id", "u"), ("Cookie", "a=b"), ("Authorization", "Basic x"),
    ("X-Identity-Status", "Invalid"), ("X-Service-Roles", "service"), ("Content-MD5", "x"),
]  # fmt: skip
_PARTS = [
    "x", "=", "x=", "=x", "%", "%=%", "%00=1", "limit", "limit%20=1", " limit=1",
    "Resources=VCPU:1", "resources[]=VCPU:1", "r%65sources=VCPU:1", "resources+=VCPU:1",
    "resources%E2%98%83=VCPU:1", "resources_%C3%A9=VCPU:1", "%ff=1", "name=%ff", "name=%C0%80",
    "limit=%D9%A1", "limit=1_0", "limit=%2B1", "resources1=VCPU%3A1",
    "resources_A=VCPU:1%2CDISK_GB:1", "resources__=VCPU:1", "resources-=VCPU:1",
    "resources" + "_" * 65 + "=VCPU:1", "group_policy", "required=%43USTOM_FAST", "same_subtree=",
    "root_required=", "in_tree", "in_tree=%20", "resources=VCPU:%D9%A1", "resources=VCPU:1_0",
    "resources=VCPU:+1", "resources=VCPU:1%00", "resources=VCPU:99999999999999999999",
    "resources=VCPU:" + "9" * 5000, "name=%F0%9F%98%80", "uuid=" + PROVIDERS[0].upper(),
    "member_of=%7B" + PROVIDERS[0] + "%7D", "a=%u2603", "?",
]  # fmt: skip
_NUMBERS = [
    b"1.0", b"2e0", b"1E0", b"1.5", b"-0", b"-0.0", b"0.0", b"true", b"null", b'"1"', b"1e400",
    b"1e308", b"-1e400", b"9007199254740993", b"9007199254740993.0", b"2147483647.0",
    b"2147483648.0", b"1e-400", b"00", b"01", b"+1", b".5", b"1.", b"0x1", b"1" * 30,
    b"[]", b"{}", b"10.0e-1", b"3.40282e+38", b"3.41e+38",
]  # fmt: skip
_STRINGS = [
    rb"\u0000", rb"\ud83d\ude00", rb"e\u0301", rb"\u00e9", rb"\u2028", rb"\uFFFE", rb"\/", rb"\n",
    rb"\u202e", rb"\x", rb"\u12", b"\t", b"\x7f", b"\xc3", b"\xed\xa0\x80", b"\xf0\x9f\x98\x80",
    b" ", b"%s", b"{0}", b"<b>x</b>", b"&amp;", b"'", rb"\"", b"", rb"\u0130", rb"\ufb01",
]  # fmt: skip

Body = Callable[[bytes], bytes]
"""A change of an encoded body."""


class Oddities:
    """Changes of requests, drawn at random."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw

    def applied(self, sent: SentRequest) -> SentRequest:
        """A request as it was, but for one part that is spelled strangely."""
        makers = [self._headers, self._headers, self._path, self._query, self._query]
        if sent.body:
            makers += [self._body] * 6
        return self._draw.pick(makers)(sent)

    def _headers(self, sent: SentRequest) -> SentRequest:
        name, values = self._draw.pick(
            [
                ("OpenStack-API-Version", _VERSIONS),
                ("Accept", _ACCEPTED),
                ("Content-Type", _CONTENT_TYPES),
                (None, []),
            ]
        )
        header, value = (
            self._draw.pick(_HEADERS) if name is None else (name, self._draw.pick(values))
        )
        headers = {key: old for key, old in sent.headers.items() if key != header}
        version = None if name == "OpenStack-API-Version" else sent.version
        spelled = self._draw.pick([header, header.lower(), header.upper()])
        return replace(sent, headers={**headers, spelled: value}, version=version)

    def _path(self, sent: SentRequest) -> SentRequest:
        path, mark, query = sent.url.partition("?")
        last = path.rpartition("/")[2]
        spelled = self._draw.pick(
            [
                f"{path}/", f"{path}//", f"/{path}", path.replace("/", "%2F"), f"{path}%2F",
                path.replace("_", "%5F"), path.replace("_", "%5f"), path.upper(), f"{path}%20",
                f"/.{path}", f"{path}/.", f"{path}/..", f"{path};x=y", f"{path}%3Fx", f"{path}%00",
                f"{path}.json", path.replace("-", "%2D"), f"{path}+", f"{path}%",
                path.removesuffix(last) + "%E2%98%83", path.removesuffix(last) + "%F0%9F%98%80",
                path.removesuffix(last) + "%C3", path.removesuffix(last) + "X" * 300,
                path.removesuffix(last) + "".join(f"%{ord(letter):02x}" for letter in last),
                path.removesuffix(last) + "%7B" + last + "%7D", f"{path}%2E%2E", path + "?" * 2,
            ]
        )  # fmt: skip
        return replace(sent, url=f"{spelled}{mark}{query}")

    def _query(self, sent: SentRequest) -> SentRequest:
        path, _, query = sent.url.partition("?")
        parts = [part for part in query.split("&") if part]
        how = self._draw.chance()
        if parts and how < 0.4:
            name = self._draw.pick(parts).partition("=")[0]
            value = self._draw.pick([*STRANGE_TEXTS, "1", "2", "none", "isolate"])
            parts.insert(
                self._draw.random.randint(0, len(parts)), f"{name}={quote(value, safe=':!,')}"
            )
        elif parts and how < 0.5:
            parts.insert(self._draw.random.randrange(len(parts)), "")
        elif parts and how < 0.6:
            place = self._draw.random.randrange(len(parts))
            name, _, value = parts[place].partition("=")
            spelled = self._draw.pick(
                [f"{name}={value}+", f"{name}=+{value}", f"{name}={value}%20"]
            )
            parts[place] = spelled
        else:
            parts.insert(self._draw.random.randint(0, len(parts)), self._draw.pick(_PARTS))
        return replace(sent, url=f"{path}?{'&'.join(parts)}")

    def _body(self, sent: SentRequest) -> SentRequest:
        assert sent.body is not None
        makers: list[Body] = [
            self._number, self._number, self._number, self._text, self._text, self._twice,
            self._twice, self._around,
        ]  # fmt: skip
        return replace(sent, body=self._draw.pick(makers)(sent.body))

    def _number(self, body: bytes) -> bytes:
        return self._with_one(rb"(?<=[ :\[])-?\d[\d.e+]*(?=[,}\]])", body, lambda _: _NUMBERS)

    def _text(self, body: bytes) -> bytes:
        """A string, a key too, with something in it, or with a letter escaped."""

        def spellings(text: bytes) -> list[bytes]:
            escaped = b"\\u%04x" % text[0] + text[1:] if text else rb"\u0041"
            return [escaped, escaped, *(text + more for more in _STRINGS)]

        return self._with_one(rb'(?<=")[^"\\]+(?=")', body, spellings)

    def _twice(self, body: bytes) -> bytes:
        """An object with a member repeated: the same, or with another value before or behind."""

        def spellings(member: bytes) -> list[bytes]:
            name = member.partition(b":")[0]
            other = name + b": " + self._draw.pick([b"null", b"1", b'"x"', b"{}", b"[]", b"0"])
            pairs = [(member, member), (other, member), (member, other)]
            return [b", ".join(pair) for pair in pairs]

        simple = rb'"[^"\\]*": (?:"[^"\\]*"|-?[\d.e+]+|null|\[[^][{}]*\]|\{[^{}]*\})'
        return self._with_one(simple, body, spellings)

    def _around(self, body: bytes) -> bytes:
        text = body.decode("utf-8", "replace")
        return self._draw.pick(
            [
                b"\xef\xbb\xbf" + body, text.encode("utf-16"), text.encode("utf-16-le"),
                text.encode("utf-32"), b"[" + body + b"]", body + b"\n \t\r", b"\x0c" + body,
                body + b"\x00", body + b"x", body + body, b"//\n" + body, b"\n\n" + body,
                body.replace(b"}", b",}", 1), body.replace(b'"', b"'"), b"[" * 2000, b"null", b"0",
                json.dumps(text).encode(), b"[" * 60 + b"]" * 60, text.encode("latin-1", "replace"),
                b"NaN", b"-Infinity", b'"' + b"x" * 30000 + b'"',
                body.replace(b" ", b"\xc2\xa0", 1),
            ]
        )  # fmt: skip

    def _with_one(
        self, pattern: bytes, body: bytes, spellings: Callable[[bytes], list[bytes]]
    ) -> bytes:
        """A body in which one match of a pattern, if there is one, is spelled in another way."""
        matches = list(re.finditer(pattern, body))
        if not matches:
            return body
        match = self._draw.pick(matches)
        return body[: match.start()] + self._draw.pick(spellings(match[0])) + body[match.end() :]
