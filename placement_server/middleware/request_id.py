"""Request ids, and JSON answers to all errors that the API does not answer itself."""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from oslo_context import context

from placement_server import errors
from placement_server.api.request import REQUEST_ID_KEY, shown_uri

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication

LOG = logging.getLogger(__name__)

_REQUEST_ID: Final = re.compile(
    r"req-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE
)


class RequestId:
    """Give every request an id, in the log, in errors and in the answer's headers.

    An id that the client sends is another service's: it appears in the log as the global request
    id, so that one action of a user can be followed through all services.

    It also settles the Accept header, on which every answer from here on inwards depends: no
    preference means JSON.
    """

    def __init__(self, application: WSGIApplication) -> None:
        self._application = application

    def __call__(self, environ: errors.Environ, start_response: StartResponse) -> Iterable[bytes]:
        request_id = f"req-{uuid.uuid4()}"
        environ[REQUEST_ID_KEY] = request_id
        if environ.get("HTTP_ACCEPT", "") in ("", "*/*"):
            environ["HTTP_ACCEPT"] = "application/json"
        context.RequestContext(request_id=request_id, global_request_id=global_request_id(environ))

        def start_identified(
            status: str, headers: list[tuple[str, str]], exc_info: Any = None
        ) -> Any:
            headers = [*headers, ("x-openstack-request-id", request_id)]
            return start_response(status, headers, exc_info)

        try:
            return self._application(environ, start_identified)
        except Exception as error:
            LOG.exception(
                "The request %s %s failed outside of the API and is answered with 500",
                environ["REQUEST_METHOD"],
                shown_uri(environ),
            )
            status, headers, body = errors.render(
                errors.InternalError(str(error)), environ, None, request_id
            )
            start_identified(status, headers)
            return [body]


def global_request_id(environ: errors.Environ) -> str | None:
    """Return the id that the client sent, if it has the form of one."""
    inbound = environ.get("HTTP_X_OPENSTACK_REQUEST_ID")
    return inbound if inbound and _REQUEST_ID.fullmatch(inbound) else None
