"""Handlers of /resource_classes and /resource_classes/{name}."""

from __future__ import annotations

from typing import Any, Final

from placement_server import errors
from placement_server.api.request import Request, check_json
from placement_server.api.response import Response, cache_headers, empty_response, json_response
from placement_server.policies import operations
from placement_server.schemas.validation import SchemaByVersion, record_of
from placement_server.store import errors as store_errors
from placement_server.store import resource_classes

NAMED: Final = SchemaByVersion(
    {
        2: record_of(
            "name", name={"type": "string", "pattern": "^CUSTOM_[A-Z0-9_]+$", "maxLength": 255}
        )
    }
)
"""A custom class, in a body or made from the path."""


def list_(request: Request) -> Response:
    """List the standard and the custom classes."""
    rows = request.store.read_single(resource_classes.list_all)
    return json_response(
        {"resource_classes": [_representation(request, row.name) for row in rows]},
        *cache_headers(request.version, *(row.last_modified for row in rows)),
    )


def create(request: Request) -> Response:
    """Create a custom class."""
    name = request.json(NAMED)["name"]
    try:
        request.store.write(resource_classes.create, name)
    except store_errors.ResourceClassExists as error:
        raise errors.Conflict(f"Conflicting resource class already exists: {name}") from error
    return empty_response(201, request.location(f"/resource_classes/{name}"))


def show(request: Request, name: str) -> Response:
    """Show a class."""
    row = request.store.read_single(resource_classes.get, name)
    return json_response(
        _representation(request, name), *cache_headers(request.version, row.last_modified)
    )


def update(request: Request, name: str) -> Response:
    """Make sure that a custom class exists; before 1.7, rename one."""
    return _rename(request, name) if request.version < (1, 7) else _ensure(request, name)


def _ensure(request: Request, name: str) -> Response:
    request.authorise(operations.CLASSES_UPDATE)
    check_json({"name": name}, NAMED, request.version)
    _, is_new = request.store.write(resource_classes.ensure, name)
    return empty_response(201 if is_new else 204, request.location(f"/resource_classes/{name}"))


def _rename(request: Request, name: str) -> Response:
    request.require_json_content()
    request.authorise(operations.CLASSES_UPDATE)
    new_name = request.json(NAMED)["name"]
    try:
        request.store.write(resource_classes.rename, name, new_name)
    except store_errors.StandardName as error:
        raise errors.BadRequest(f"Cannot update standard resource class {name}") from error
    except store_errors.ResourceClassExists as error:
        if new_name != name:
            raise errors.Conflict(f"Resource class already exists: {new_name}") from error
    return json_response(_representation(request, new_name))


def delete(request: Request, name: str) -> Response:
    """Delete a custom class that no provider has inventory of."""
    try:
        request.store.write(resource_classes.delete, name)
    except store_errors.StandardName as error:
        raise errors.BadRequest(
            f"Error in delete resource class: Cannot delete standard resource class {name}."
        ) from error
    except store_errors.NameInUse as error:
        raise errors.Conflict(
            f"Error in delete resource class: Cannot delete resource class {name}. "
            "Class is in use in inventory."
        ) from error
    return empty_response(204)


def _representation(request: Request, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "links": [{"rel": "self", "href": request.link(f"/resource_classes/{name}")}],
    }
