"""The API as an OpenAPI 3.1 document, built from the route table and the request schemas.

``OPERATIONS`` adds a sentence and the statuses of each operation; a test fails when a route is
missing there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from placement_server import __version__, extensions, limits
from placement_server.api import routes
from placement_server.candidates.query import schema as candidates
from placement_server.microversion import MAX, SERVICE_TYPE, Microversion
from placement_server.schemas import (
    aggregate,
    allocation,
    inventory,
    provider_tree,
    reshaper,
    resource_class,
    resource_provider,
    trait,
    usage,
    what_if,
)
from placement_server.schemas import changes as changes_schema
from placement_server.schemas.candidate_explanation import (
    EXPLANATION,
    EXPLANATION_WITH_CLOSEST,
)
from placement_server.schemas.capacity import CAPACITY, FRAGMENTATION, FRAGMENTATION_QUERY
from placement_server.schemas.validation import SchemaByVersion

Document = dict[str, Any]

STATUS_TEXTS: Final = {
    200: "The representation.",
    201: "Created; Location names it.",
    204: "Done; no body.",
    304: "Not modified; no body.",
    400: "The request is malformed, or names something that does not exist.",
    401: "No token, or not a valid one.",
    403: "The policy does not allow this.",
    404: "There is no such thing, or not at this microversion.",
    406: "The microversion or the media type asked for is not available.",
    409: "A conflict: a generation moved, a name is taken, something is in use or too little.",
    410: "Changes behind `after` have been deleted: read everything again.",
    412: "The tree is not the one that the request was made for.",
    415: "The body is not application/json.",
    428: "The request does not name the tree, or a provider's generation, that it was made for.",
    503: "As many requests wait as may; ask again after Retry-After.",
}


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path.

    :ivar since: the minor microversion that brought it.
    :ivar statuses: those of its answers beside the 400, 401, 403 and 406 that all may.
    :ivar body: schemas of the request body; None when there is none.
    :ivar query: schemas of the query string; None when it is ignored.
    :ivar result: schema of the body of a 200; None where it is not written down.
    :ivar extension: the version of the extensions that brought it; None in the plain API.
    :ivar headers: request headers of its own, with what they are for.
    :ivar later: the later versions of the extensions that changed the body of a 200, with its
        schema.
    """

    summary: str
    since: int
    statuses: tuple[int, ...]
    body: SchemaByVersion | None = None
    query: SchemaByVersion | None = None
    result: Document | None = None
    extension: Microversion | None = None
    headers: tuple[tuple[str, str], ...] = ()
    later: tuple[tuple[Microversion, Document], ...] = ()


_EXTENDED: Final = SchemaByVersion(
    {version[1]: candidates.schema_for(version, extensions=True) for version in candidates.SCHEMAS}
)
_CANDIDATES: Final = SchemaByVersion(
    {version[1]: schema for version, schema in candidates.SCHEMAS.items()}
)
_PROVIDER: Final = "/resource_providers/{uuid}"

OPERATIONS: Final[dict[tuple[str, str], Operation]] = {
    ("GET", "/"): Operation("The versions served; needs no token", 0, (200,)),
    ("GET", "/resource_classes"): Operation("All resource classes", 2, (200, 404)),
    ("POST", "/resource_classes"): Operation(
        "Create a custom resource class", 2, (201, 404, 409, 415), body=resource_class.NAMED
    ),
    ("GET", "/resource_classes/{name}"): Operation("One resource class", 2, (200, 404)),
    ("PUT", "/resource_classes/{name}"): Operation(
        "Ensure that a custom resource class exists; before 1.7, rename it", 2, (201, 204, 404)
    ),
    ("DELETE", "/resource_classes/{name}"): Operation(
        "Delete a custom resource class that no inventory has", 2, (204, 404, 409)
    ),
    ("GET", "/resource_providers"): Operation(
        "Resource providers, filtered", 0, (200,), query=resource_provider.LIST
    ),
    ("POST", "/resource_providers"): Operation(
        "Create a resource provider", 0, (200, 201, 409, 415), body=resource_provider.CREATE
    ),
    ("GET", _PROVIDER): Operation("One resource provider", 0, (200, 404)),
    ("PUT", _PROVIDER): Operation(
        "Rename a resource provider, or move it in its tree",
        0,
        (200, 404, 409, 415),
        body=resource_provider.UPDATE,
    ),
    ("DELETE", _PROVIDER): Operation(
        "Delete a provider without children and allocations", 0, (204, 404, 409)
    ),
    ("GET", f"{_PROVIDER}/inventories"): Operation("All inventories", 0, (200, 404)),
    ("POST", f"{_PROVIDER}/inventories"): Operation(
        "Add one inventory", 0, (201, 404, 409, 415), body=inventory.CREATE
    ),
    ("PUT", f"{_PROVIDER}/inventories"): Operation(
        "Replace all inventories", 0, (200, 404, 409, 415), body=inventory.REPLACE
    ),
    ("DELETE", f"{_PROVIDER}/inventories"): Operation(
        "Delete all inventories", 5, (204, 404, 405, 409)
    ),
    ("GET", f"{_PROVIDER}/inventories/{{resource_class}}"): Operation(
        "One inventory", 0, (200, 404)
    ),
    ("PUT", f"{_PROVIDER}/inventories/{{resource_class}}"): Operation(
        "Replace one inventory", 0, (200, 404, 409, 415), body=inventory.UPDATE
    ),
    ("DELETE", f"{_PROVIDER}/inventories/{{resource_class}}"): Operation(
        "Delete one inventory", 0, (204, 404, 409)
    ),
    ("GET", f"{_PROVIDER}/usages"): Operation("Usage by resource class", 0, (200, 404)),
    ("GET", f"{_PROVIDER}/aggregates"): Operation("Aggregates of a provider", 1, (200, 404)),
    ("PUT", f"{_PROVIDER}/aggregates"): Operation(
        "Replace the aggregates of a provider", 1, (200, 404, 409, 415), body=aggregate.REPLACE
    ),
    ("GET", f"{_PROVIDER}/allocations"): Operation("Who holds what of a provider", 0, (200, 404)),
    ("GET", f"{_PROVIDER}/traits"): Operation("Traits of a provider", 6, (200, 404)),
    ("PUT", f"{_PROVIDER}/traits"): Operation(
        "Replace the traits of a provider", 6, (200, 404, 409, 415), body=trait.REPLACE_OF_PROVIDER
    ),
    ("DELETE", f"{_PROVIDER}/traits"): Operation(
        "Remove all traits of a provider", 6, (204, 404, 409)
    ),
    ("POST", "/allocations"): Operation(
        "Replace the allocations of several consumers at once",
        13,
        (204, 404, 409, 415),
        body=allocation.POST,
    ),
    ("GET", "/allocations/{consumer_uuid}"): Operation("What a consumer holds", 0, (200,)),
    ("PUT", "/allocations/{consumer_uuid}"): Operation(
        "Replace all that a consumer holds", 0, (204, 409, 415), body=allocation.PUT
    ),
    ("DELETE", "/allocations/{consumer_uuid}"): Operation(
        "Take everything from a consumer", 0, (204, 404)
    ),
    ("GET", "/allocation_candidates"): Operation(
        "Ways to satisfy a request", 10, (200, 404), query=_CANDIDATES
    ),
    ("GET", "/candidate_explanation"): Operation(
        "Why a request has few allocation candidates or none",
        10,
        (200, 404),
        query=_EXTENDED,
        result=EXPLANATION,
        later=((Microversion(1, 1), EXPLANATION_WITH_CLOSEST),),
        extension=Microversion(1, 0),
    ),
    ("GET", "/changes"): Operation(
        "What was written, in order, as it happens",
        0,
        (200, 410, 503),
        query=changes_schema.QUERY,
        result=changes_schema.CHANGES,
        extension=Microversion(1, 1),
    ),
    ("POST", "/claims"): Operation(
        "Claim the first of several candidates that fits",
        38,
        (200, 404, 409, 415),
        body=allocation.CLAIM,
        result=allocation.CLAIMED,
        extension=Microversion(1, 1),
    ),
    ("GET", "/provider_trees/{uuid}"): Operation(
        "A whole provider tree",
        0,
        (200, 304, 404),
        query=provider_tree.SHOW,
        result=provider_tree.TREE,
        extension=Microversion(1, 1),
        headers=(("If-None-Match", "ETags that the client has: 304 if the present one is there."),),
    ),
    ("PUT", "/provider_trees/{uuid}"): Operation(
        "Replace a whole provider tree, with the allocations in it, or nothing",
        0,
        (200, 204, 409, 412, 415, 428),
        body=provider_tree.REPLACE,
        result=provider_tree.TREE,
        extension=Microversion(1, 1),
        headers=(
            ("If-Match", "The ETag of GET, or * for any state. This or If-None-Match is required."),
            ("If-None-Match", "Only *: the tree must not exist yet."),
            ("Prefer", "return=minimal: 204 with the ETag alone."),
        ),
    ),
    ("POST", "/what_if"): Operation(
        "Answers about the fleet as it would be after some changes",
        10,
        (200, 404, 409, 415),
        body=what_if.WHAT_IF,
        result=what_if.ANSWERS,
        extension=Microversion(1, 1),
    ),
    ("GET", "/capacity"): Operation(
        "How many further claims of a request would succeed, one after the other",
        29,
        (200, 404),
        query=_EXTENDED,
        result=CAPACITY,
        extension=Microversion(1, 1),
    ),
    ("GET", "/fragmentation"): Operation(
        "What is free of each class, what of it is stranded, and how many of some shapes fit",
        29,
        (200, 404),
        query=FRAGMENTATION_QUERY,
        result=FRAGMENTATION,
        extension=Microversion(1, 1),
    ),
    ("GET", "/traits"): Operation("All traits, filtered", 6, (200, 404), query=trait.LIST),
    ("GET", "/traits/{name}"): Operation("Whether a trait exists", 6, (204, 404)),
    ("PUT", "/traits/{name}"): Operation("Ensure that a custom trait exists", 6, (201, 204, 404)),
    ("DELETE", "/traits/{name}"): Operation(
        "Delete a custom trait that no provider has", 6, (204, 404, 409)
    ),
    ("GET", "/usages"): Operation("Usage of a project", 9, (200, 404), query=usage.TOTAL),
    ("POST", "/reshaper"): Operation(
        "Move inventories and the allocations against them, atomically",
        30,
        (204, 404, 409, 415),
        body=reshaper.RESHAPE,
    ),
}

ERROR_SCHEMA: Final[Document] = {
    "type": "object",
    "required": ["errors"],
    "properties": {
        "errors": {
            "type": "array",
            "minItems": 1,
            "maxItems": 1,
            "items": {
                "type": "object",
                "required": ["status", "title", "detail", "request_id"],
                "properties": {
                    "status": {"type": "integer"},
                    "title": {"type": "string"},
                    "detail": {"type": "string"},
                    "code": {"type": "string", "pattern": "^placement\\."},
                    "request_id": {"type": "string", "pattern": "^req-[a-fA-F0-9-]+$"},
                    "pointer": {"type": "string", "format": "json-pointer"},
                    "lost": allocation.LOST,
                    "moved": provider_tree.MOVED,
                    "etag": {"type": ["string", "null"]},
                    "conflicts": provider_tree.CONFLICTS,
                },
            },
        }
    },
}


def build(version: tuple[int, int] = MAX) -> Document:
    """Build the document of one microversion: its routes, with the schemas in force at it."""
    paths: Document = {}
    for route in routes.ALL_ROUTES:
        operations = {
            method.lower(): _operation(route.template, operation, version)
            for method in route.methods
            if (operation := OPERATIONS[method, route.template]).since <= version[1]
        }
        if operations:
            paths[route.template] = operations
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Placement API",
            "version": f"{version[0]}.{version[1]}",
            "summary": f"As served by placement-server {__version__}",
            "description": (
                f"A request names at most {limits.NAMES} each of traits, resource classes, "
                "aggregates and resource providers, in all parts of it together; a query has at "
                f"most {limits.FILTERS} filters and {limits.GROUPS} request groups; allocations of "
                f"at most {limits.CONSUMERS} consumers are written at once; a claim has at most "
                f"{limits.CANDIDATES} candidates; at most {limits.CHANGES} changes are supposed "
                f"and {limits.QUESTIONS} questions asked at once. More is 400."
            ),
            "license": {"name": "Apache-2.0"},
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "token": {"type": "apiKey", "in": "header", "name": "X-Auth-Token"}
            },
            "schemas": {"Error": ERROR_SCHEMA},
        },
    }


def _operation(path: str, operation: Operation, version: tuple[int, int]) -> Document:
    document: Document = {
        "summary": operation.summary,
        "description": f"Since 1.{operation.since}."
        + (f" Only with {_extension(operation)}." if operation.extension else ""),
        "parameters": [
            {
                "name": "OpenStack-API-Version",
                "in": "header",
                "schema": _version_schema(operation, version),
                "required": version[1] > 0 or operation.extension is not None,
            },
            *_path_parameters(path),
            *_query_parameters(operation.query, version),
            *(
                {
                    "name": name,
                    "in": "header",
                    "description": description,
                    "required": False,
                    "schema": {"type": "string"},
                }
                for name, description in operation.headers
            ),
        ],
        "responses": {
            str(status): _response(status, _result(operation))
            for status in sorted({*operation.statuses, 400, 401, 403, 406})
        },
    }
    if operation.body is not None:
        schema = operation.body.schema(version)
        document["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schema}},
        }
    return document


def _version_schema(operation: Operation, version: tuple[int, int]) -> Document:
    first = version_header(operation, version)
    if not operation.later:
        return {"const": first}
    plain, _, _ = first.partition(", ")
    later = [f"{plain}, {extensions.SERVICE_TYPE} {number}" for number, _ in operation.later]
    return {"enum": [first, *later]}


def _result(operation: Operation) -> Document | None:
    """Return the schema of the body of a 200: of each version of the extensions, if they differ."""
    if operation.result is None or not operation.later:
        return operation.result
    return {
        "oneOf": [
            {"title": _extension(operation), **operation.result},
            *(
                {"title": f"{extensions.SERVICE_TYPE} {number}", **schema}
                for number, schema in operation.later
            ),
        ]
    }


def version_header(operation: Operation, version: tuple[int, int]) -> str:
    """Return the value of ``OpenStack-API-Version`` with which an operation exists."""
    plain = f"{SERVICE_TYPE} {version[0]}.{version[1]}"
    return f"{plain}, {_extension(operation)}" if operation.extension else plain


def _extension(operation: Operation) -> str:
    return f"{extensions.SERVICE_TYPE} {operation.extension}"


def _path_parameters(path: str) -> list[Document]:
    return [
        {
            "name": segment.strip("{}"),
            "in": "path",
            "required": True,
            "schema": {"type": "string", "minLength": 1},
        }
        for segment in path.split("/")
        if segment.startswith("{")
    ]


def _query_parameters(query: SchemaByVersion | None, version: tuple[int, int]) -> list[Document]:
    if query is None:
        return []
    schema = query.schema(version)
    required = schema.get("required", [])
    named = [
        {"name": name, "in": "query", "required": name in required, "schema": dict(of)}
        for name, of in schema["properties"].items()
    ]
    # OpenAPI has no parameters named by a pattern: each family is shown by the member without a
    # suffix and by one with it.
    families = [
        {
            "name": f"{keyword}{suffix}",
            "in": "query",
            "required": False,
            "schema": {"type": "string"},
            "description": f"Any suffix that matches {pattern}.",
        }
        for pattern in schema.get("patternProperties", {})
        for keyword in [pattern[1 : pattern.index("(")]]
        for suffix in ("", "1")
    ]
    return named + families


def _response(status: int, result: Document | None) -> Document:
    response: Document = {"description": STATUS_TEXTS.get(status, "Method not allowed.")}
    if status >= 400 and status != 401:
        response["content"] = {
            "application/json": {"schema": {"$ref": "#/components/schemas/Error"}}
        }
    elif status == 200:
        response["content"] = {"application/json": {"schema": result or {"type": "object"}}}
    return response
