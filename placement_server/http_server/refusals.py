"""Errors that the HTTP server finds before the application has a request.

They have the form of the API's errors. What was sent is never quoted: a line that cannot be parsed
may hold a token.
"""

from __future__ import annotations

import ssl
import uuid
from dataclasses import dataclass
from typing import Final

import webob.exc
from gunicorn.http import errors as gunicorn_errors

from placement_server import errors
from placement_server.http_server.clients import NoRoomForBody

_DEFECT: Final = (
    webob.exc.HTTPInternalServerError,
    "The server failed. Its log has the reason under this request id.",
)

#: Answers by gunicorn's exception; one that is missing here is for a malformed request.
_REFUSALS: Final[dict[type[Exception], tuple[type[webob.exc.HTTPException], str]]] = {
    gunicorn_errors.LimitRequestLine: (
        webob.exc.HTTPRequestURITooLong,
        "The request line is too long.",
    ),
    gunicorn_errors.LimitRequestHeaders: (
        webob.exc.HTTPRequestHeaderFieldsTooLarge,
        "The header fields are too many, or one of them is too long.",
    ),
    gunicorn_errors.ExpectationFailed: (
        webob.exc.HTTPExpectationFailed,
        "The only expectation that this server meets is 100-continue.",
    ),
    gunicorn_errors.UnsupportedTransferCoding: (
        webob.exc.HTTPNotImplemented,
        "The only transfer coding that this server reads is chunked.",
    ),
    gunicorn_errors.InvalidRequestLine: (
        webob.exc.HTTPBadRequest,
        "The request line is not METHOD SP TARGET SP HTTP/1.1.",
    ),
    gunicorn_errors.InvalidRequestMethod: (
        webob.exc.HTTPBadRequest,
        "The method in the request line is not one of HTTP.",
    ),
    gunicorn_errors.InvalidHTTPVersion: (
        webob.exc.HTTPBadRequest,
        "The version in the request line is not HTTP/1.0 or HTTP/1.1.",
    ),
    gunicorn_errors.InvalidHeaderName: (
        webob.exc.HTTPBadRequest,
        "The name of a header field has a character that is not allowed there.",
    ),
    gunicorn_errors.ObsoleteFolding: (
        webob.exc.HTTPBadRequest,
        "A header field goes on in a second line.",
    ),
    gunicorn_errors.InvalidHeader: (
        webob.exc.HTTPBadRequest,
        "A header field is malformed, or contradicts another one.",
    ),
    # The application's own headers, not the client's.
    gunicorn_errors.InvalidResponseHeader: _DEFECT,
    gunicorn_errors.InvalidResponseHeaderName: _DEFECT,
    gunicorn_errors.ConfigurationProblem: _DEFECT,
    MemoryError: (webob.exc.HTTPServiceUnavailable, "The server has no memory for this request."),
    NoRoomForBody: (
        webob.exc.HTTPServiceUnavailable,
        "The server has no room for the body of this request; its log has the reason.",
    ),
    ssl.SSLError: (webob.exc.HTTPBadRequest, "The TLS handshake failed."),
    gunicorn_errors.InvalidChunkSize: (
        webob.exc.HTTPBadRequest,
        "The size of a chunk of the body is not a hexadecimal number.",
    ),
    gunicorn_errors.ChunkMissingTerminator: (
        webob.exc.HTTPBadRequest,
        "A chunk of the body is not as long as its size says.",
    ),
}


@dataclass(frozen=True, slots=True)
class ServerRefusal:
    """One answer of the HTTP server itself.

    :ivar status: the status of HTTP; 500 if the server is at fault.
    :ivar reason: what is wrong, for the client and the log.
    :ivar request_id: the id in the answer and in the log.
    :ivar answer: the whole answer; the connection is closed after it.
    """

    status: int
    reason: str
    request_id: str
    answer: bytes


def refusal(error: Exception) -> ServerRefusal:
    """Return the answer to a request that failed with this error in the HTTP server."""
    kind, reason = _kind_and_reason(error)
    request_id = f"req-{uuid.uuid4()}"
    api_error = errors.ApiError(reason)
    api_error.webob_class = kind
    environ: errors.Environ = {"HTTP_ACCEPT": "application/json", "REQUEST_METHOD": "GET"}
    status, headers, body = errors.render(api_error, environ, None, request_id)
    headers += [("Connection", "close"), ("x-openstack-request-id", request_id)]
    head = "".join(f"{name}: {value}\r\n" for name, value in headers)
    answer = f"HTTP/1.1 {status}\r\n{head}\r\n".encode("latin-1") + body
    return ServerRefusal(kind.code, reason, request_id, answer)


def _kind_and_reason(error: Exception) -> tuple[type[webob.exc.HTTPException], str]:
    for kind in type(error).__mro__:
        if kind in _REFUSALS:
            return _REFUSALS[kind]
    if isinstance(error, gunicorn_errors.ParseException):
        return webob.exc.HTTPBadRequest, "The request is not well-formed HTTP/1.1."
    return _DEFECT
