"""The API as an OpenAPI 3.1 document, built from the route table and the request schemas."""

from __future__ import annotations

from typing import Final

from placement_server import __version__, limits
from placement_server.api import routes
from placement_server.negotiation import extensions
from placement_server.negotiation.microversion import MAX, SERVICE_TYPE
from placement_server.openapi import parameters
from placement_server.openapi.operations import OPERATIONS, Document, Operation
from placement_server.schemas.validation import SchemaByVersion

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
    415: "The body is not application/json.",
    503: "The search took too long, or as many requests wait as may: ask after Retry-After.",
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
            method.lower(): _operation(route, method, version)
            for method, endpoint in route.methods.items()
            if endpoint.since <= version[1]
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
                f"at most {limits.CONSUMERS} consumers are written at once; at most "
                f"{limits.CHANGES} changes are supposed and {limits.QUESTIONS} questions asked at "
                "once. More is 400."
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


def _operation(route: routes.Route, method: str, version: tuple[int, int]) -> Document:
    operation = OPERATIONS[method, route.template]
    document: Document = {
        "summary": operation.summary,
        "description": f"Since 1.{route.methods[method].since}."
        + (f" Only with {_extension(route)}." if route.extension else ""),
        "parameters": [
            {
                "name": "OpenStack-API-Version",
                "in": "header",
                "schema": _version_schema(route, operation, version),
                "required": version[1] > 0 or route.extension is not None,
                "description": parameters.VERSION.text,
            },
            *_path_parameters(route.template),
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
            str(status): _response(status, _result(route, operation))
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


def _version_schema(
    route: routes.Route, operation: Operation, version: tuple[int, int]
) -> Document:
    first = version_header(route, version)
    if not operation.later:
        return {"const": first}
    plain, _, _ = first.partition(", ")
    later_versions = [
        f"{plain}, {extensions.SERVICE_TYPE} {number}" for number, _ in operation.later
    ]
    return {"enum": [first, *later_versions]}


def _result(route: routes.Route, operation: Operation) -> Document | None:
    """Return the schema of the body of a 200: of each version of the extensions, if they differ."""
    if operation.result is None or not operation.later:
        return operation.result
    return {
        "oneOf": [
            {"title": _extension(route), **operation.result},
            *(
                {"title": f"{extensions.SERVICE_TYPE} {number}", **schema}
                for number, schema in operation.later
            ),
        ]
    }


def version_header(route: routes.Route, version: tuple[int, int]) -> str:
    """Return the value of `OpenStack-API-Version` with which a route exists."""
    plain = f"{SERVICE_TYPE} {version[0]}.{version[1]}"
    return f"{plain}, {_extension(route)}" if route.extension else plain


def _extension(route: routes.Route) -> str:
    return f"{extensions.SERVICE_TYPE} {route.extension}"


def _path_parameters(path: str) -> list[Document]:
    return [
        {
            "name": segment.strip("{}"),
            "in": "path",
            "required": True,
            "schema": {"type": "string", "minLength": 1},
            **parameters.IN_PATH[segment.strip("{}")].fields(),
        }
        for segment in path.split("/")
        if segment.startswith("{")
    ]


def _query_parameters(query: SchemaByVersion | None, version: tuple[int, int]) -> list[Document]:
    if query is None:
        return []
    schema = query.schema(version)
    required_names = schema.get("required", [])
    named = [
        {
            "name": name,
            "in": "query",
            "required": name in required_names,
            "schema": dict(of),
            **parameters.IN_QUERY[name].fields(),
        }
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
            **_family(keyword, pattern),
        }
        for pattern in schema.get("patternProperties", {})
        for keyword in [pattern[1 : pattern.index("(")]]
        for suffix in ("", "1")
    ]
    return named + families


def _family(keyword: str, pattern: str) -> Document:
    fields = parameters.IN_QUERY[keyword].fields()
    description = f"{fields['description']} Any suffix that matches {pattern}."
    return {**fields, "description": description}


def _response(status: int, result: Document | None) -> Document:
    response: Document = {"description": STATUS_TEXTS.get(status, "Method not allowed.")}
    if status >= 400 and status != 401:
        response["content"] = {
            "application/json": {"schema": {"$ref": "#/components/schemas/Error"}}
        }
    elif status == 200:
        response["content"] = {"application/json": {"schema": result or {"type": "object"}}}
    return response
