"""Login of people on the pages: Keystone's token for a name and a password, which are not kept."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from keystoneauth1 import exceptions
from keystoneauth1.identity import generic
from oslo_config import cfg

from placement_server import errors
from placement_server.api.request import TAKE_TURN_KEY, TURN_KEY
from placement_server.middleware.keystone import auth_url, new_session, without_turns

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication

LOG = logging.getLogger(__name__)

NAME: Final = "login"
"""The path below that of the pages."""

_LARGEST: Final = 8192
"""Bytes of a body."""

_AT_ONCE: Final = 4
"""Logins of one process that wait for Keystone; anybody may send one."""

_MISREAD: Final = (ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError)
"""Errors of the library, which reads answers of Keystone without checking them."""

_FIELDS: Final = ("user", "password", "domain", "project", "project_domain")
_HEADERS: Final = [
    ("content-type", "application/json"),
    ("cache-control", "no-store"),
    ("x-content-type-options", "nosniff"),
]
_Answer = tuple[str, Mapping[str, Any]]


class Login:
    """Answer `POST {path}/login`, and pass all other requests on.

    :param path: where the pages are, without a slash at the end.
    """

    def __init__(self, application: WSGIApplication, path: str, conf: cfg.ConfigOpts) -> None:
        self._application = application
        self._path = f"{path}/{NAME}"
        self._conf = conf
        self._free = threading.BoundedSemaphore(_AT_ONCE)

    def __call__(self, environ: errors.Environ, start_response: StartResponse) -> Iterable[bytes]:
        if environ.get("PATH_INFO") != self._path:
            return self._application(environ, start_response)
        status, document = self._answer(environ)
        body = json.dumps(document).encode()
        start_response(status, [*_HEADERS, ("content-length", str(len(body)))])
        return [body]

    def _answer(self, environ: errors.Environ) -> _Answer:
        # JSON alone, which no page of another server can send without being asked first
        if environ["REQUEST_METHOD"] != "POST" or environ.get("CONTENT_TYPE") != "application/json":
            return _refusal("400 Bad Request", "expected POST of application/json")
        fields = _fields(environ)
        if fields is None:
            return _refusal("400 Bad Request", f"expected an object of texts: {', '.join(_FIELDS)}")
        if not self._free.acquire(blocking=False):
            return _refusal("503 Service Unavailable", "too many logins at a time; try again")
        # a request that waits for Keystone keeps no other one waiting
        environ.get(TURN_KEY, without_turns)()
        try:
            return self._token(fields)
        finally:
            self._free.release()
            environ.get(TAKE_TURN_KEY, without_turns)()

    def _token(self, fields: Mapping[str, str]) -> _Answer:
        domain, url = fields["domain"] or "Default", auth_url(self._conf)
        if not url:
            return _refusal("503 Service Unavailable", "[keystone_authtoken] has no auth_url")
        plugin = generic.Password(
            auth_url=url,
            username=fields["user"],
            password=fields["password"],
            user_domain_name=domain,
            project_name=fields["project"] or None,
            project_domain_name=(fields["project_domain"] or domain) if fields["project"] else None,
        )
        try:
            access = plugin.get_access(new_session(self._conf))
            token = {"token": access.auth_token, "expires_at": access.expires.isoformat()}
        except exceptions.Unauthorized:
            return _refusal(
                "401 Unauthorized",
                "Keystone does not accept this name and password, or the user has no role in the "
                "project",
            )
        except (exceptions.ClientException, *_MISREAD) as error:
            LOG.warning("Keystone does not answer a login as expected: %s", type(error).__name__)
            return _refusal("503 Service Unavailable", "Keystone does not answer as expected")
        return "200 OK", token


def _fields(environ: errors.Environ) -> dict[str, str] | None:
    try:
        size = int(environ.get("CONTENT_LENGTH") or "0")
        body = json.loads(environ["wsgi.input"].read(size)) if 0 < size <= _LARGEST else None
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(body, dict) or not {"user", "password"} <= body.keys() <= set(_FIELDS):
        return None
    if not all(isinstance(value, str) for value in body.values()):
        return None
    return {name: body.get(name, "") for name in _FIELDS}


def _refusal(status: str, detail: str) -> _Answer:
    return status, {"errors": [{"status": int(status[:3]), "detail": f"{detail}."}]}
