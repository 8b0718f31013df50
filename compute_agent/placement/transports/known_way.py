"""A way to placement on which it has answered: later requests go there without their libraries.

keystoneauth1 and requests take four times as long for a request as urllib3 below them, and an agent
that was idle for a minute pays for all their code again. What they find out, they find out with the
first request after each new token: the address, the certificates, and that nothing else is needed.
A quiet pass is this one request: by turns it took 1.75 ms of CPU with this module and 2.26 without
(medians of 60; 2.0 at the least), and may take 2. Where the libraries come to need less than 350 µs
more than urllib3, `KeystoneTransport.send` without its two lines about a way is all there is to it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any, Final

import urllib3.exceptions
from keystoneauth1 import exceptions as ka_exc
from requests.utils import DEFAULT_ACCEPT_ENCODING, get_netrc_auth, select_proxy
from urllib3 import Timeout as ConnectionTimeout

from compute_agent.bounded_http.limits import LimitExceeded
from compute_agent.bounded_http.session import (
    REDIRECT_STATUSES,
    AnswerRefused,
    BoundedResponse,
    BoundedSession,
)
from compute_agent.placement.transports.transport import Request, Timeout

_LIBRARY_LOG: Final = logging.getLogger("keystoneauth.session")


class KnownWay:
    """The pool of connections to an address, and the token that is good there."""

    def __init__(
        self, session: BoundedSession, pool: Any, base: str, authorization: Mapping[str, str]
    ) -> None:
        self._session = session
        self._pool = pool
        self._base = base
        _, slash, path = base.partition("://")[2].partition("/")
        self._path = slash + path
        self._authorization = authorization

    @classmethod
    def learn(cls, adapter: Any, request: Request, answer: Any) -> KnownWay | None:
        """Return the way on which an answer came; None where a request needs more than a token."""
        if not isinstance(answer, BoundedResponse) or not answer.ok:
            return None
        session = adapter.session.session
        environment = session.merge_environment_settings(answer.url, {}, True, None, None)
        base = answer.url.removesuffix(request.path)
        needs_more = (
            base == answer.url
            or select_proxy(answer.url, environment["proxies"])
            or get_netrc_auth(answer.url)
            or session.cookies
            or adapter.connect_retries
            or adapter.status_code_retries
            or adapter.additional_headers
            or adapter.session.additional_headers
            or adapter.session.original_ip
        )
        return None if needs_more else cls(session, answer.pool, base, _authorization(adapter))

    def ask(self, adapter: Any, request: Request, timeout: Timeout) -> BoundedResponse | None:
        """Return the answer; None where the libraries have to ask, as with a new token.

        :raises keystoneauth1.exceptions.ConnectionError: there is none, as the libraries raise it.
        """
        is_logged = _LIBRARY_LOG.isEnabledFor(logging.DEBUG)
        if (
            is_logged
            or not request.path.isascii()
            or _authorization(adapter) != self._authorization
        ):
            return None
        headers = {"Accept-Encoding": DEFAULT_ACCEPT_ENCODING, **self._authorization}
        headers |= request.headers()
        body = None
        if request.json is not None:
            headers["Content-Type"] = "application/json"
            body = json.dumps(request.json).encode()
        url = f"{self._base}{request.path}"
        try:
            raw = self._pool.urlopen(
                request.method,
                f"{self._path}{request.path}",
                body=body,
                headers=headers,
                redirect=False,
                retries=False,
                assert_same_host=False,
                timeout=ConnectionTimeout(connect=timeout[0], read=timeout[1]),
                preload_content=False,
                decode_content=False,
            )
            answer = self._session.read(url, raw)
        except LimitExceeded as violation:
            refusal = AnswerRefused.of(request.method, url, violation)
            raise ka_exc.UnknownConnectionError(str(refusal), refusal) from violation
        except (urllib3.exceptions.HTTPError, OSError) as error:
            # urllib3 counts a refused connection among its timeouts
            if isinstance(error, urllib3.exceptions.TimeoutError) and not isinstance(
                error, urllib3.exceptions.NewConnectionError
            ):
                raise ka_exc.ConnectTimeout(f"Request to {url} timed out") from error
            reason = f"Unable to establish connection to {url}: {error}"
            raise ka_exc.ConnectFailure(reason) from error
        return None if answer.status_code in (401, *REDIRECT_STATUSES) else answer


def _authorization(adapter: Any) -> Mapping[str, str]:
    return adapter.session.get_auth_headers(adapter.auth) or {}
