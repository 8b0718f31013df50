"""Errors of the HTTP API, their codes and their rendering.

A handler raises one of the classes below with the specific message. The fixed lead sentence of
each status, and the HTML and plain renderings, are WebOb's.

Rules for codes: a code never changes and is never reused; a new one is dotted, starts with
`placement.` and names what is wrong, not where; it is only for situations in which a client
would act differently. Everything else has UNDEFINED.

    ApiError
    ├── BadRequest              400
    ├── Forbidden               403
    ├── NotFound                404
    ├── MethodNotAllowed        405
    ├── NotAcceptable           406
    │   └── UnacceptableMicroversion
    ├── Conflict                409
    ├── Gone                    410
    ├── UnsupportedMediaType    415
    ├── InternalError           500
    └── ServiceUnavailable      503
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import webob
import webob.exc

from placement_server.negotiation import microversion

UNDEFINED: Final = "placement.undefined_code"
CONCURRENT_UPDATE: Final = "placement.concurrent_update"
SEARCH_GAVE_UP: Final = "placement.search_gave_up"
INVENTORY_INUSE: Final = "placement.inventory.inuse"
DUPLICATE_NAME: Final = "placement.duplicate_name"
CHANGES_PRUNED: Final = "placement.changes_pruned"
PROVIDER_INUSE: Final = "placement.resource_provider.inuse"
PROVIDER_CANNOT_DELETE_PARENT: Final = "placement.resource_provider.cannot_delete_parent"
PROVIDER_NOT_FOUND: Final = "placement.resource_provider.not_found"

Environ = dict[str, Any]
Rendered = tuple[str, list[tuple[str, str]], bytes]

_SURROGATES: Final = re.compile("[\ud800-\udfff]")
_BREAK: Final = re.compile("<br[^>]*>", re.IGNORECASE)
_COMMENT: Final = re.compile("<!--|-->")
_TAG: Final = re.compile("<[^>]*>")

_MESSAGE_LIMIT: Final = 65_536
"""A message may quote what the client sent, and that may be megabytes."""


class ApiError(Exception):
    """An answer other than success. `message` is the specific part of the detail.

    :param pointer: the JSON pointer to the part of the body that is wrong, where that is known.
    """

    status: int = 500

    def __init__(
        self, message: str = "", *, code: str = UNDEFINED, pointer: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.pointer = pointer

    def extra_headers(self) -> list[tuple[str, str]]:
        """Return the headers that belong to this error alone."""
        return []

    def extra_fields(self) -> Mapping[str, Any]:
        """Return the keys of the JSON error entry that belong to this error alone."""
        return {} if self.pointer is None else {"pointer": self.pointer}


class BadRequest(ApiError):
    """400: the request is malformed."""

    status = 400


class Forbidden(ApiError):
    """403: the policy refuses the caller."""

    status = 403


class NotFound(ApiError):
    """404: the route or the resource does not exist, or not at this microversion."""

    status = 404


class MethodNotAllowed(ApiError):
    """405. `allow` lists the methods of the path; empty sends no Allow header."""

    status = 405

    def __init__(self, message: str = "", *, allow: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.allow = allow

    def extra_headers(self) -> list[tuple[str, str]]:
        return [("allow", ", ".join(self.allow))] if self.allow else []


class NotAcceptable(ApiError):
    """406: the client does not accept JSON."""

    status = 406


class UnacceptableMicroversion(NotAcceptable):
    """406 of the version negotiation, with the versions served."""

    def extra_fields(self) -> Mapping[str, Any]:
        return {"max_version": str(microversion.MAX), "min_version": str(microversion.MIN)}


class Conflict(ApiError):
    """409: the state of the data, or a concurrent change of it, forbids the request."""

    status = 409


class Gone(ApiError):
    """410: what a reader of the feed of changes asks for has been deleted."""

    status = 410


class UnsupportedMediaType(ApiError):
    """415: the body is not announced as JSON."""

    status = 415


class InternalError(ApiError):
    """500: an unexpected error."""


class ServiceUnavailable(ApiError):
    """503: the database is unavailable, or a search took more time or memory than it may.

    :param retry_after: after how many seconds the client may ask again; None where that is not
        known.
    """

    status = 503

    def __init__(
        self, message: str = "", *, retry_after: int | None = None, code: str = UNDEFINED
    ) -> None:
        super().__init__(message, code=code)
        self.retry_after = retry_after

    def extra_headers(self) -> list[tuple[str, str]]:
        return [] if self.retry_after is None else [("retry-after", str(self.retry_after))]


def render(
    error: ApiError, environ: Environ, version: tuple[int, int] | None, request_id: str
) -> Rendered:
    """Return status line, headers and body of an error, in the form that the client accepts.

    :param version: the negotiated microversion, or None where there is none (the negotiation
        itself failed): then the entry has no code.
    """
    message = _SURROGATES.sub("\N{REPLACEMENT CHARACTER}", error.message)
    response = webob.exc.status_map[error.status](
        detail=message[:_MESSAGE_LIMIT],
        json_formatter=_json_formatter(error, version, request_id),
    )

    def plain_body(environ: Environ) -> str:
        body = strip_tags(str(response._make_body(environ, webob.exc.no_escape)))
        return f"{response.status}\n\n{body}"

    response.plain_body = plain_body
    status, headers, body = _generate(response, environ)
    return status, [*error.extra_headers(), *headers], body


def unauthorized_response(environ: Environ) -> Rendered:
    """Return the 401 of the token-less authentication, whose body is flat where others are lists.

    The shape is what OpenStack's server sends; clients rely on the status alone.
    """
    return _generate(webob.exc.HTTPUnauthorized(), environ)


def strip_tags(text: str) -> str:
    """Join the lines of a text, and remove what looks like an HTML tag.

    In linear time also for a text of nothing but opening brackets: those after the last closing
    one cannot begin a tag, so they are not examined.
    """
    text = _BREAK.sub("\n", text.replace("\n", " ").replace("\r", ""))
    text = _COMMENT.sub("", text)
    closed_length = text.rfind(">") + 1
    return _TAG.sub("", text[:closed_length]) + text[closed_length:]


def _generate(response: webob.exc.WSGIHTTPException, environ: Environ) -> Rendered:
    request = webob.Request(environ)
    status, headers, chunks = request.call_application(response.generate_response)
    return status, headers, b"".join(chunks)


def _json_formatter(
    error: ApiError, version: tuple[int, int] | None, request_id: str
) -> Callable[..., dict[str, Any]]:
    def formatted(body: str, status: str, title: str, environ: Environ) -> dict[str, Any]:
        del environ
        entry: dict[str, Any] = {
            "status": int(status.split(" ", 1)[0]),
            "title": title,
            "detail": strip_tags(body),
        }
        if version is not None and version >= (1, 23):
            entry["code"] = error.code
        entry["request_id"] = request_id
        entry.update(error.extra_fields())
        return {"errors": [entry]}

    return formatted
