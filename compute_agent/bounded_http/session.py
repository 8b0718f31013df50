"""The requests session for placement, keystone and others, which limits their answers.

Nothing of an answer reaches the caller before all of it was read and found within the `limits`,
so its users (keystoneauth1, this project) can rely on them.
"""

from __future__ import annotations

import io
import logging
import math
import time
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

import requests
import urllib3.exceptions
from keystoneauth1 import session as ka_session
from requests.structures import CaseInsensitiveDict

from compute_agent.bounded_http import json_document
from compute_agent.bounded_http.limits import (
    ANSWER_BYTES,
    REDIRECTS,
    BoundedAnswer,
    LimitExceeded,
    seconds_of,
)
from compute_agent.programs.kept_values import LastingConditions

LOG = logging.getLogger(__name__)

PIECE: Final = 64 * 1024
REDIRECT_STATUSES: Final = (301, 302, 303, 305, 307, 308)
DEFAULT_PORTS: Final = {"http": 80, "https": 443}
LONGEST_PAUSE: Final = 60.0
SHOWN: Final = 200
"""Characters of a foreign header that go into a message."""


class AnswerRefused(requests.RequestException):
    """An answer breaks a limit and was not taken; the message has request, limit and remedy."""

    @classmethod
    def of(cls, method: str | None, url: str | None, violation: LimitExceeded) -> AnswerRefused:
        """Return the error for an answer to this request."""
        return cls(f"The answer to {method} {url} {violation}. Check what answers at this address.")


class BoundedResponse(requests.Response):
    """An answer that has been read and checked.

    :ivar document: its JSON; absent where it has none.
    :ivar pool: the connections of which one brought it.
    """

    document: Any
    pool: Any = None

    def json(self, **arguments: Any) -> Any:
        """Return its JSON, parsed once.

        :raises requests.JSONDecodeError: it has none.
        """
        return self.document if hasattr(self, "document") else super().json(**arguments)


class BoundedAdapter(ka_session.TCPKeepAliveAdapter):  # type: ignore[misc]
    """An adapter whose answers take no longer in all than one wait may."""

    def init_poolmanager(self, *arguments: Any, **keywords: Any) -> None:
        """Create the pools for direct connections."""
        super().init_poolmanager(*arguments, **keywords)
        _limit_pools(self.poolmanager)

    def proxy_manager_for(self, proxy: str, **keywords: Any) -> Any:
        """Return the pools for connections through a proxy."""
        has_manager = proxy in self.proxy_manager
        manager = super().proxy_manager_for(proxy, **keywords)
        if not has_manager:
            _limit_pools(manager)
        return manager

    def build_response(self, request: Any, answer: Any) -> BoundedResponse:
        """Build a response that keeps the parsed JSON."""
        bounded_response = BoundedResponse()
        vars(bounded_response).update(vars(super().build_response(request, answer)))
        bounded_response.pool = getattr(answer, "_pool", None)
        return bounded_response


def _limit_pools(manager: Any) -> None:
    manager.pool_classes_by_scheme = {
        scheme: type(
            pool.__name__,
            (pool,),
            {
                "ConnectionCls": type(
                    pool.ConnectionCls.__name__,
                    (pool.ConnectionCls,),
                    {"response_class": BoundedAnswer},
                )
            },
        )
        for scheme, pool in manager.pool_classes_by_scheme.items()
    }


class BoundedSession(requests.Session):
    """An HTTP session that takes no answer beyond the limits, and no redirect to another server.

    :param longest_pause: returns the seconds beyond which a Retry-After is not obeyed.
    """

    def __init__(self, longest_pause: Callable[[], float] = lambda: LONGEST_PAUSE) -> None:
        super().__init__()
        self._longest_pause = longest_pause
        self._conditions = LastingConditions()
        for scheme in list(self.adapters):
            self.mount(scheme, BoundedAdapter())

    def prepare_request(self, request: requests.Request) -> requests.PreparedRequest:
        """Return a request as it is sent.

        :raises requests.exceptions.InvalidHeader: without the value, which may be a token.
        """
        try:
            return super().prepare_request(request)
        except requests.exceptions.InvalidHeader:
            names = ", ".join(name for name, value in request.headers.items() if _is_odd(value))
        raise requests.exceptions.InvalidHeader(
            f"{names or 'a header'} has a line break, or begins with a space"
        )

    def send(self, request: requests.PreparedRequest, **arguments: Any) -> requests.Response:
        """Send one request and return its whole answer, following redirects within the server.

        A redirect repeats method and body, as keystoneauth1 would. One that leads elsewhere is an
        error and not an answer, because a caller would follow it and take the token along.

        :raises AnswerRefused: the answer breaks a limit.
        :raises requests.RequestException: no answer came.
        """
        timeout = arguments.pop("timeout", None)
        connect, total = timeout if isinstance(timeout, tuple) else (timeout, timeout)
        deadline = None if total is None else time.monotonic() + total
        arguments |= {"stream": True, "allow_redirects": False}
        for _ in range(REDIRECTS + 1):
            # urllib3 does not take 0, which may remain after the last redirect
            remaining_seconds = (
                None if deadline is None else max(0.001, deadline - time.monotonic())
            )
            try:
                answer = super().send(request, timeout=(connect, remaining_seconds), **arguments)
                _read_body(answer)
                _parse(answer)
            except LimitExceeded as violation:
                raise AnswerRefused.of(request.method, request.url, violation) from violation
            self._limit_pause(answer)
            location = answer.headers.get("location", "")
            if answer.status_code not in REDIRECT_STATUSES or not location:
                return answer
            request = _onward(request, answer.status_code, location)
        raise AnswerRefused(
            f"{request.method} {request.url} was redirected more than {REDIRECTS} times. Check "
            "what answers at this address.",
            request=request,
        )

    def read(self, url: str, raw: Any) -> BoundedResponse:
        """Return the whole answer that urllib3 has begun to read; nothing of it is parsed.

        :raises LimitExceeded: it breaks a limit.
        :raises requests.ConnectionError: it ended too early.
        """
        answer = BoundedResponse()
        answer.status_code, answer.reason, answer.url = raw.status, raw.reason, url
        answer.headers, answer.raw = CaseInsensitiveDict(raw.headers), raw
        _read_body(answer)
        self._limit_pause(answer)
        return answer

    def get_redirect_target(self, resp: requests.Response) -> str | None:  # noqa: ARG002
        """Return `None`: `send` follows redirects, requests would read their bodies unbounded."""
        return None

    def _limit_pause(self, answer: requests.Response) -> None:
        """Bound an answer's Retry-After, and round it up to whole seconds.

        keystoneauth1 sleeps that long where status_code_retries is set.
        """
        value = answer.headers.get("retry-after")
        if value is None:
            self._conditions.is_over("pause")
            return
        seconds, longest = seconds_of(value), self._longest_pause()
        if seconds is None:
            del answer.headers["retry-after"]
            return
        if seconds > longest and self._conditions.is_new("pause"):
            LOG.warning(
                "%s asks to wait %.0f s (Retry-After: %s). The next request is sent after "
                "%.0f s, the longest wait. Check the limits of the service.",
                answer.url,
                seconds,
                value[:SHOWN],
                longest,
            )
        answer.headers["retry-after"] = str(math.ceil(min(seconds, longest)))


def _is_odd(value: object) -> bool:
    text = value.decode("latin-1") if isinstance(value, bytes) else str(value)
    return text[:1].isspace() or "\r" in text or "\n" in text


def _read_body(answer: requests.Response) -> None:
    """Read the body.

    :raises LimitExceeded: it breaks a limit.
    :raises requests.ConnectionError: it ended too early.
    """
    answer.raw = _body_of(answer)
    _ = answer.content
    answer.raw = io.BytesIO()
    # these services answer in UTF-8, whatever their header names
    answer.encoding = "utf-8"


def _parse(answer: requests.Response) -> None:
    if answer.content and isinstance(answer, BoundedResponse):
        try:
            answer.document = json_document.parse(answer.content)
        except ValueError:
            return  # not JSON: the caller decides whether that is an error


def _body_of(answer: requests.Response) -> io.BytesIO:
    body = io.BytesIO()
    try:
        for piece in answer.raw.stream(PIECE, decode_content=True):
            if body.tell() + len(piece) > ANSWER_BYTES:
                raise LimitExceeded(
                    f"is more than {ANSWER_BYTES // 2**20} MiB when decompressed, and was not read "
                    "further"
                )
            body.write(piece)
    except urllib3.exceptions.DecodeError as error:
        encoding = answer.headers.get("content-encoding", "")[:SHOWN]
        raise LimitExceeded(f"does not match its Content-Encoding {encoding!r}") from error
    except urllib3.exceptions.HTTPError as error:
        raise requests.ConnectionError(error, request=answer.request) from error
    except LimitExceeded:
        # the rest must not be taken for the answer to the next request, and what was read
        # must not live as long as the traceback of the error
        answer.raw.close()
        body.close()
        raise
    body.seek(0)
    return body


def _onward(
    request: requests.PreparedRequest, status: int, location: str
) -> requests.PreparedRequest:
    """Return the same request for the target of a redirect.

    :raises AnswerRefused: the target is another server.
    """
    onward, original = request.copy(), str(request.url)
    try:
        onward.prepare_url(urljoin(original, location), None)
        elsewhere = _server(str(onward.url)) != _server(original)
    except ValueError:
        elsewhere = True  # not an address; requests' own errors are ValueErrors too
    if elsewhere:
        raise AnswerRefused(
            f"{request.method} {original} was answered {status}, a redirect to "
            f"{location[:SHOWN]!r}. Redirects are followed within the same scheme, host and "
            "port only, so that no token goes elsewhere. Correct what redirects, or set the "
            "right address (endpoint_override, or the catalogue).",
            request=request,
        )
    return onward


def _server(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or DEFAULT_PORTS.get(parts.scheme)
