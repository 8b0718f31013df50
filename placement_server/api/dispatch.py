"""Dispatch of WSGI requests to handlers."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from placement_server import errors, extensions, microversion
from placement_server.api import routes
from placement_server.api.request import (
    EXTENSIONS_KEY,
    REQUEST_ID_KEY,
    ROUTE_KEY,
    VERSION_KEY,
    Request,
    shown_uri,
)
from placement_server.api.response import STATUS_LINES, Headers, Response
from placement_server.api.services import Services
from placement_server.microversion import Microversion
from placement_server.store.errors import StoreUnavailable

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse

LOG = logging.getLogger(__name__)

_VARY: Final = ("vary", "openstack-api-version")


class Dispatcher:
    """The innermost WSGI application: negotiates, checks the body's headers, routes, answers.

    :param own_routes: routes of this server's own, by their whole paths, beside those of the API.
    """

    def __init__(
        self, services: Services, own_routes: Mapping[str, routes.Route] | None = None
    ) -> None:
        self._services = services
        self._own_routes = own_routes or {}

    def __call__(self, environ: errors.Environ, start_response: StartResponse) -> Iterable[bytes]:
        version: Microversion | None = None
        try:
            version = _negotiate(environ)
            environ[VERSION_KEY] = version
            _check_body_headers(environ)
            response = self._answer(environ, version)
        except errors.ApiError as error:
            return _fail(error, environ, version, start_response)
        except StoreUnavailable as error:
            LOG.error("%s %s: %s", environ["REQUEST_METHOD"], shown_uri(environ), error)
            return _fail(errors.ServiceUnavailable(str(error)), environ, version, start_response)
        except MemoryError:
            LOG.exception("%s %s: no memory", environ["REQUEST_METHOD"], shown_uri(environ))
            unavailable = errors.ServiceUnavailable("The server has no memory for this request.")
            return _fail(unavailable, environ, version, start_response)
        except Exception as error:
            LOG.exception("%s %s failed", environ["REQUEST_METHOD"], shown_uri(environ))
            return _fail(errors.InternalError(str(error)), environ, version, start_response)
        body = response.body
        chunks = ([body] if body else []) if isinstance(body, bytes) else body
        headers = [*response.headers, *_version_headers(version, environ)]
        if response.status != HTTPStatus.NOT_MODIFIED:
            # there it would be the length of what is not sent
            headers.append(("content-length", str(sum(map(len, chunks)))))
        start_response(STATUS_LINES[response.status], headers)
        return chunks

    def _answer(self, environ: errors.Environ, version: Microversion) -> Response:
        path = environ.get("PATH_INFO", "")
        route, path_values = routes.find(path, extensions=environ[EXTENSIONS_KEY])
        if route is None:
            route = self._own_routes.get(path)
        if route is None:
            raise errors.NotFound
        environ[ROUTE_KEY] = route.template
        handler = route.methods.get(environ["REQUEST_METHOD"])
        if handler is None:
            raise errors.MethodNotAllowed(
                "The method specified is not allowed for this resource.",
                allow=route.allowed_methods,
            )
        return handler(Request(environ, version, self._services, path_values))


def _negotiate(environ: errors.Environ) -> Microversion:
    header = environ.get("HTTP_OPENSTACK_API_VERSION")
    try:
        version = microversion.negotiate(header)
        environ[EXTENSIONS_KEY] = extensions.asked_for(header)
    except microversion.InvalidVersionString as error:
        raise errors.BadRequest(f"Invalid microversion: {error}") from error
    except microversion.UnacceptableVersion as error:
        raise errors.UnacceptableMicroversion(f"Invalid microversion: {error}") from error
    return version


def _check_body_headers(environ: errors.Environ) -> None:
    # Before anything may try to read a body whose length is not a number.
    content_length = environ.get("CONTENT_LENGTH")
    if not content_length:
        return
    try:
        length = int(content_length)
    except ValueError as error:
        raise errors.BadRequest("content-length header must be an integer") from error
    if length > 0 and not environ.get("CONTENT_TYPE"):
        raise errors.BadRequest("content-type header required when content-length > 0")


def _version_headers(version: Microversion, environ: errors.Environ) -> Headers:
    return [("openstack-api-version", _version_text(version, environ[EXTENSIONS_KEY])), _VARY]


@functools.cache
def _version_text(version: Microversion, extension: Microversion | None) -> str:
    served_version = f"{microversion.SERVICE_TYPE} {version}"
    return (
        f"{served_version}, {extensions.SERVICE_TYPE} {extension}" if extension else served_version
    )


def _fail(
    error: errors.ApiError,
    environ: errors.Environ,
    version: Microversion | None,
    start_response: StartResponse,
) -> Iterable[bytes]:
    status, headers, body = errors.render(error, environ, version, environ[REQUEST_ID_KEY])
    if version is not None and not isinstance(error, errors.InternalError):
        headers += _version_headers(version, environ)
    start_response(status, headers)
    return [body]
