"""Routes of the whole API in one table, and the dispatch of requests to their handlers.

A path is literals and placeholders in turn, a placeholder at every even place; a request matches
it segment by segment, and a placeholder does not match an empty one.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct
from sqlalchemy.exc import SQLAlchemyError

from compute_agent.programs.kept_values import KeptValues
from placement_server import errors
from placement_server.api.extensions import (
    agent_reports,
    candidate_explanation,
    capacity,
    changes,
    history,
    make_room,
    provider_trees,
    what_if,
)
from placement_server.api.request import (
    CALLER_KEY,
    EXTENSIONS_KEY,
    REQUEST_ID_KEY,
    ROUTE_KEY,
    VERSION_KEY,
    Request,
    global_request_id,
    shown_uri,
)
from placement_server.api.resources import (
    aggregates,
    allocation_candidates,
    allocations,
    inventories,
    provider_traits,
    reshaper,
    resource_classes,
    resource_providers,
    traits,
    usages,
    version_document,
)
from placement_server.api.response import STATUS_LINES, Headers, Response
from placement_server.api.services import Services
from placement_server.negotiation import extensions, microversion
from placement_server.negotiation.microversion import Microversion
from placement_server.policies import operations as rules
from placement_server.policies.enforcer import Caller
from placement_server.store import errors as store_errors
from placement_server.store.agent_reports import OUTAGE_LOG_SECONDS
from placement_server.store.past_changes import AUTHOR, USER_LENGTH, Author

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse


class Endpoint(NamedTuple):
    """One method of a route.

    :ivar handler: takes the request and the values of the path's placeholders.
    :ivar checks: what is checked before it, in this order: V the microversion, A that JSON is
        accepted, C that JSON is sent, P the policy. Handlers make those that need more themselves.
    :ivar rule: of the policy.
    :ivar since: the minor microversion that brought it.
    """

    handler: Callable[..., Response]
    checks: str = ""
    rule: str = ""
    since: int = 0


ROUTES: Final[dict[str, dict[str, Endpoint]]] = {
    "/": {"GET": Endpoint(version_document.show)},
    "/resource_classes": {
        "GET": Endpoint(resource_classes.list_, "VAP", rules.CLASSES_LIST, 2),
        "POST": Endpoint(resource_classes.create, "VCP", rules.CLASSES_CREATE, 2),
    },
    "/resource_classes/{name}": {
        "GET": Endpoint(resource_classes.show, "VAP", rules.CLASSES_SHOW, 2),
        "PUT": Endpoint(resource_classes.update, "V", since=2),
        "DELETE": Endpoint(resource_classes.delete, "VP", rules.CLASSES_DELETE, 2),
    },
    "/resource_providers": {
        "GET": Endpoint(resource_providers.list_, "AP", rules.PROVIDERS_LIST),
        "POST": Endpoint(resource_providers.create, "CP", rules.PROVIDERS_CREATE),
    },
    "/resource_providers/{uuid}": {
        "GET": Endpoint(resource_providers.show, "AP", rules.PROVIDERS_SHOW),
        "DELETE": Endpoint(resource_providers.delete, "P", rules.PROVIDERS_DELETE),
        "PUT": Endpoint(resource_providers.update, "CP", rules.PROVIDERS_UPDATE),
    },
    "/resource_providers/{uuid}/inventories": {
        "GET": Endpoint(inventories.list_, "AP", rules.INVENTORIES_LIST),
        "POST": Endpoint(inventories.create, "CP", rules.INVENTORIES_CREATE),
        "PUT": Endpoint(inventories.replace, "CP", rules.INVENTORIES_UPDATE),
        "DELETE": Endpoint(inventories.delete_all, "", since=5),
    },
    "/resource_providers/{uuid}/inventories/{resource_class}": {
        "GET": Endpoint(inventories.show, "AP", rules.INVENTORIES_SHOW),
        "PUT": Endpoint(inventories.update, "CP", rules.INVENTORIES_UPDATE),
        "DELETE": Endpoint(inventories.delete, "P", rules.INVENTORIES_DELETE),
    },
    "/resource_providers/{uuid}/usages": {
        "GET": Endpoint(usages.of_provider, "AP", rules.PROVIDER_USAGES)
    },
    "/resource_providers/{uuid}/aggregates": {
        "GET": Endpoint(aggregates.list_, "AVP", rules.AGGREGATES_LIST, 1),
        "PUT": Endpoint(aggregates.replace, "CVP", rules.AGGREGATES_UPDATE, 1),
    },
    "/resource_providers/{uuid}/allocations": {
        "GET": Endpoint(allocations.of_provider, "AP", rules.PROVIDER_ALLOCATIONS)
    },
    "/resource_providers/{uuid}/traits": {
        "GET": Endpoint(provider_traits.list_, "VAP", rules.PROVIDER_TRAITS_LIST, 6),
        "PUT": Endpoint(provider_traits.replace, "VCP", rules.PROVIDER_TRAITS_UPDATE, 6),
        "DELETE": Endpoint(provider_traits.delete, "VP", rules.PROVIDER_TRAITS_DELETE, 6),
    },
    "/allocations": {
        "POST": Endpoint(allocations.replace_many, "VCP", rules.ALLOCATIONS_MANAGE, 13)
    },
    "/allocations/{consumer_uuid}": {
        "GET": Endpoint(allocations.of_consumer, "AP", rules.ALLOCATIONS_LIST),
        "PUT": Endpoint(allocations.replace, "CP", rules.ALLOCATIONS_UPDATE),
        "DELETE": Endpoint(allocations.delete, "P", rules.ALLOCATIONS_DELETE),
    },
    "/allocation_candidates": {
        "GET": Endpoint(allocation_candidates.list_, "VAP", rules.CANDIDATES_LIST, 10)
    },
    "/traits": {"GET": Endpoint(traits.list_, "VAP", rules.TRAITS_LIST, 6)},
    "/traits/{name}": {
        "GET": Endpoint(traits.show, "VP", rules.TRAITS_SHOW, 6),
        "PUT": Endpoint(traits.ensure, "VP", rules.TRAITS_UPDATE, 6),
        "DELETE": Endpoint(traits.delete, "VP", rules.TRAITS_DELETE, 6),
    },
    "/usages": {"GET": Endpoint(usages.of_project, "VA", since=9)},
    "/reshaper": {"POST": Endpoint(reshaper.apply, "VCP", rules.RESHAPE, 30)},
}


EXTENSION_ROUTES: Final[dict[Microversion, dict[str, dict[str, Endpoint]]]] = {
    Microversion(1, 0): {
        "/candidate_explanation": {
            "GET": Endpoint(candidate_explanation.show, "VAP", rules.CANDIDATES_LIST, 10)
        },
    },
    Microversion(1, 1): {
        "/agent_reports": {"GET": Endpoint(agent_reports.list_, "AP", rules.AGENT_REPORTS_LIST)},
        "/changes": {"GET": Endpoint(changes.list_, "AP", rules.CHANGES_LIST)},
        "/history": {"GET": Endpoint(history.list_, "AP", rules.HISTORY_LIST)},
        "/provider_trees/{uuid}": {"GET": Endpoint(provider_trees.show, "AP", rules.TREES_SHOW)},
        "/what_if": {"POST": Endpoint(what_if.answer, "VCAP", rules.WHAT_IF, 10)},
        "/make_room": {"POST": Endpoint(make_room.answer, "VCAP", rules.MAKE_ROOM, 34)},
        "/capacity": {"GET": Endpoint(capacity.show, "VAP", rules.CAPACITY_SHOW, 29)},
        "/fragmentation": {
            "GET": Endpoint(capacity.show_fragmentation, "VAP", rules.FRAGMENTATION_SHOW, 29)
        },
    },
}
"""The routes that each version of the extensions brought; unknown paths to clients without it."""


class Route(Struct, frozen=True):
    """One line of the table.

    :ivar template: its name in logs and metrics.
    :ivar extension: the version of the extensions that brought it; None in the plain API.
    """

    template: str
    methods: dict[str, Endpoint]
    extension: Microversion | None = None


ALL_ROUTES: Final = tuple(
    Route(template, methods, version)
    for version, table in ((None, ROUTES), *EXTENSION_ROUTES.items())
    for template, methods in table.items()
)

_TABLE: Final = {
    (len(segments), *segments[0::2]): route
    for route in ALL_ROUTES
    for segments in [route.template.split("/")[1:]]
}


def find(path: str, *, extensions: Microversion | None) -> tuple[Route | None, list[str]]:
    """Return the route of a path, None when there is none, and the values of its placeholders.

    :param extensions: the version of the extensions that the client asked for, if it did.

    A trailing or doubled slash makes another, unknown path. The empty path, which is what a
    mount point without its slash yields, is the version document.
    """
    # PostgreSQL has no text with U+0000, so no name that has one is ever found.
    start, *segments = (path or "/").replace("\0", "\N{REPLACEMENT CHARACTER}").split("/")
    values = segments[1::2]
    route = _TABLE.get((len(segments), *segments[0::2])) if all(values) and not start else None
    if route is not None and route.extension is not None:
        route = route if extensions is not None and extensions >= route.extension else None
    return route, values


LOG = logging.getLogger(__name__)

_HEADER_KEPT: Final = 200
"""Characters of a header whose versions are remembered at most: a client may send random ones."""


class Dispatcher:
    """The innermost WSGI application: negotiates, checks the body's headers, routes, answers.

    What the store does not find is 404, and a write that lost every race 409, each with the
    sentence of the store; handlers name the answers that differ.

    :param own_routes: routes of this server's own, by their whole paths, beside those of the API.
    """

    def __init__(self, services: Services, own_routes: Mapping[str, Route] | None = None) -> None:
        self._services = services
        self._own_routes = own_routes or {}
        self._logged_causes: KeptValues[str, bool] = KeptValues(OUTAGE_LOG_SECONDS, most=100)

    def __call__(self, environ: errors.Environ, start_response: StartResponse) -> Iterable[bytes]:
        versions: _Versions | None = None
        try:
            versions = _negotiate(environ)
            environ[VERSION_KEY], environ[EXTENSIONS_KEY] = versions.shown, versions.extension
            _check_body_headers(environ)
            response = self._answer(environ, versions)
        except errors.ApiError as error:
            return _fail(error, environ, versions, start_response)
        except store_errors.NotFound as error:
            return _fail(errors.NotFound(str(error)), environ, versions, start_response)
        except store_errors.ConcurrentUpdate as error:
            conflict = errors.Conflict(str(error), code=errors.CONCURRENT_UPDATE)
            return _fail(conflict, environ, versions, start_response)
        except store_errors.StoreUnavailable as error:
            self._log_outage(environ, error)
            unavailable = errors.ServiceUnavailable(f"{error.message.rstrip('.')}.")
            return _fail(unavailable, environ, versions, start_response)
        except MemoryError:
            LOG.exception("%s %s: no memory", environ["REQUEST_METHOD"], shown_uri(environ))
            unavailable = errors.ServiceUnavailable("The server has no memory for this request.")
            return _fail(unavailable, environ, versions, start_response)
        except Exception as error:
            LOG.exception("%s %s failed", environ["REQUEST_METHOD"], shown_uri(environ))
            # statements and values of the database are for the log
            is_of_database = isinstance(error, SQLAlchemyError)
            text = "The database refused a statement." if is_of_database else str(error)
            return _fail(errors.InternalError(text), environ, versions, start_response)
        body = response.body
        chunks = ([body] if body else []) if isinstance(body, bytes) else body
        headers = [*response.headers, *versions.headers]
        if response.status != 304:
            # there it would be the length of what is not sent
            headers.append(("content-length", str(sum(map(len, chunks)))))
        start_response(STATUS_LINES[response.status], headers)
        return chunks

    def _log_outage(self, environ: errors.Environ, error: store_errors.StoreUnavailable) -> None:
        """Log a failure of the database, once a minute for each cause."""
        cause = error.cause or error.message
        if self._logged_causes.is_new(cause, True):
            LOG.error(
                "%s %s: %s. Other requests that fail for this are not logged for %.0f s.",
                environ["REQUEST_METHOD"],
                shown_uri(environ),
                str(error).rstrip("."),
                OUTAGE_LOG_SECONDS,
            )

    def _answer(self, environ: errors.Environ, versions: _Versions) -> Response:
        path = environ.get("PATH_INFO", "")
        route, path_values = find(path, extensions=versions.extension)
        if route is None:
            route, path_values = self._own_routes.get(path), []
        if route is None:
            raise errors.NotFound
        environ[ROUTE_KEY] = route.template
        method = environ["REQUEST_METHOD"]
        endpoint = route.methods.get(method)
        if endpoint is None:
            raise errors.MethodNotAllowed(
                "The method specified is not allowed for this resource.",
                allow=tuple(route.methods),
            )
        if method != "GET":
            AUTHOR.set(_author(environ))
        request = Request(environ, versions.version, self._services)
        for check in endpoint.checks:
            if check == "V":
                request.require_version(endpoint.since)
            elif check == "A":
                request.require_json_accepted()
            elif check == "C":
                request.require_json_content()
            else:
                request.authorise(endpoint.rule)
        return endpoint.handler(request, *path_values)


def _author(environ: errors.Environ) -> Author:
    """Return who makes a request: by the id that the client gave it, where there is one."""
    caller: Caller | None = environ.get(CALLER_KEY)
    user_id = (caller.user_id if caller is not None else None) or ""
    return Author(global_request_id(environ) or environ[REQUEST_ID_KEY], user_id[:USER_LENGTH])


class _Versions(NamedTuple):
    """What a client and this server agree on.

    :ivar extension: the version of the extensions that the client asked for; None when it did not.
    :ivar shown: the version in the log.
    :ivar headers: what answers say of it.
    """

    version: Microversion
    shown: str
    extension: Microversion | None
    headers: Headers


@functools.lru_cache(maxsize=512)
def _known_versions(header: str) -> _Versions:
    """Return the versions by a header's value: clients send a handful of short ones."""
    version, extension = microversion.negotiate(header), extensions.asked_for(header)
    text = f"{microversion.SERVICE_TYPE} {version}"
    if extension:
        text += f", {extensions.SERVICE_TYPE} {extension}"
    headers = [("openstack-api-version", text), ("vary", "openstack-api-version")]
    return _Versions(version, str(version), extension, headers)


def _negotiate(environ: errors.Environ) -> _Versions:
    header = environ.get("HTTP_OPENSTACK_API_VERSION") or ""
    is_short = len(header) <= _HEADER_KEPT
    try:
        return _known_versions(header) if is_short else _known_versions.__wrapped__(header)
    except microversion.InvalidVersionString as error:
        raise errors.BadRequest(f"Invalid microversion: {error}") from error
    except microversion.UnacceptableVersion as error:
        raise errors.UnacceptableMicroversion(f"Invalid microversion: {error}") from error


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


def _fail(
    error: errors.ApiError,
    environ: errors.Environ,
    versions: _Versions | None,
    start_response: StartResponse,
) -> Iterable[bytes]:
    version = versions.version if versions is not None else None
    status, headers, body = errors.render(error, environ, version, environ[REQUEST_ID_KEY])
    if versions is not None and not isinstance(error, errors.InternalError):
        headers += versions.headers
    start_response(status, headers)
    return [body]
