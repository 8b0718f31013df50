"""Handlers of /traits and /traits/{name}."""

from __future__ import annotations

from typing import Any, Final

from placement_server import errors, limits
from placement_server.api.request import Request
from placement_server.api.response import Response, cache_headers, empty_response, json_response
from placement_server.schemas.validation import TEXT, InvalidInstance, SchemaByVersion, record_of
from placement_server.store import errors as store_errors
from placement_server.store.providers import traits

NAME: Final = SchemaByVersion(
    {6: {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^CUSTOM_[A-Z0-9_]+$"}}
)
LIST: Final = SchemaByVersion({6: record_of(name=TEXT, associated=TEXT)}, strict_uuids=True)


def list_(request: Request) -> Response:
    """List the traits that pass the filters."""
    params = request.query(LIST)
    matches = request.store.read(traits.list_names, **_filters(params))
    return json_response(
        {"traits": [trait.name for trait in matches]},
        *cache_headers(request.version, *(trait.last_modified for trait in matches)),
    )


def _filters(params: dict[str, str]) -> dict[str, Any]:
    conditions: dict[str, Any] = {}
    if "name" in params:
        conditions.update(_name_filter(params["name"]))
    if "associated" in params:
        is_associated = {"true": True, "false": False}.get(params["associated"].lower())
        if is_associated is None:
            raise errors.BadRequest(
                'The query parameter "associated" only accepts "true" or "false"'
            )
        conditions["associated"] = is_associated
    return conditions


def _name_filter(value: str) -> dict[str, Any]:
    operator, colon, operand = value.partition(":")
    if not colon:
        raise errors.BadRequest(
            "Badly formatted name parameter. Expected name query string parameter in form: "
            f'?name=[in|startswith]:[name1,name2|prefix]. Got: "{value}"'
        )
    if operator == "in":
        names = set(operand.split(","))
        if len(names) > limits.NAMES:
            message = limits.too_many("'name'", len(names), "traits", limits.NAMES)
            raise errors.BadRequest(f"Invalid query string parameters: {message}")
        return {"names": names}
    if operator == "startswith":
        return {"prefix": operand}
    # Clients of the published server get every trait for an operator that does not exist.
    return {}


def ensure(request: Request, name: str) -> Response:
    """Make sure that a custom trait exists."""
    try:
        NAME.check(name, request.version)
    except InvalidInstance as error:
        raise errors.BadRequest(
            "The trait is invalid. A valid trait must be no longer than 255 characters, start "
            'with the prefix "CUSTOM_" and use following characters: "A"-"Z", "0"-"9" and "_"'
        ) from error
    trait, is_new = request.store.write(traits.ensure, name)
    return empty_response(
        201 if is_new else 204,
        request.location(f"/traits/{name}"),
        *cache_headers(request.version, trait.last_modified),
    )


def show(request: Request, name: str) -> Response:
    """Answer 204 where a trait exists."""
    trait = request.store.read_single(traits.get, name)
    return empty_response(204, *cache_headers(request.version, trait.last_modified))


def delete(request: Request, name: str) -> Response:
    """Delete a custom trait that no provider has."""
    try:
        request.store.write(traits.delete, name)
    except store_errors.StandardName as error:
        raise errors.BadRequest(f"Cannot delete standard trait {name}.") from error
    except store_errors.NameInUse as error:
        raise errors.Conflict(f"The trait {name} is in use by a resource provider.") from error
    return empty_response(204)
