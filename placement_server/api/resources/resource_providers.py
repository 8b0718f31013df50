"""Handlers of /resource_providers and /resource_providers/{uuid}."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, Final, TypeVar

from placement_server import errors
from placement_server.api.request import Request
from placement_server.api.response import Response, cache_headers, empty_response, json_response
from placement_server.candidates.errors import QueryError
from placement_server.candidates.query import filters
from placement_server.candidates.query.query import RequestGroup
from placement_server.schemas.validation import TEXT, UUID, SchemaByVersion, record_of
from placement_server.store import errors as store_errors
from placement_server.store.providers import providers
from placement_server.store.records import KEEP, MAX_INT, Provider
from placement_server.store.transaction import ReadTransaction

_Part = TypeVar("_Part")

_NAME: Final = {"type": "string", "maxLength": 200}
_PARENT: Final = {"anyOf": [UUID, {"type": "null"}]}

CREATE: Final = SchemaByVersion(
    {
        0: record_of("name", name=_NAME, uuid=UUID),
        14: record_of("name", name=_NAME, uuid=UUID, parent_provider_uuid=_PARENT),
    }
)
UPDATE: Final = SchemaByVersion(
    {
        0: record_of("name", name=_NAME),
        14: record_of("name", name=_NAME, parent_provider_uuid=_PARENT),
    }
)
_LIST: Final[dict[int, Any]] = {
    0: {"name": TEXT, "uuid": UUID},
    3: {"member_of": TEXT},
    4: {"resources": TEXT},
    14: {"in_tree": UUID},
    18: {"required": TEXT},
}
"""The parameters that each minor brought."""

LIST: Final = SchemaByVersion(
    {
        minor: record_of(
            **{
                name: schema
                for since, parameters in _LIST.items()
                if since <= minor
                for name, schema in parameters.items()
            }
        )
        for minor in _LIST
    },
    strict_uuids=True,
)

_LINKS: Final = (
    ("inventories", 0),
    ("usages", 0),
    ("aggregates", 1),
    ("traits", 6),
    ("allocations", 11),
)
"""Links of a provider and the minor that added each."""

_FILTERS: Final = ("required", "forbidden", "member_of", "forbidden_aggregates")


def list_(request: Request) -> Response:
    """List the providers that pass every filter."""
    params = request.query(LIST)
    try:
        conditions, amounts = _conditions(request, params)
        matches = _find(request, conditions)
        # more than any inventory gives, and so than a column holds: searched for only because an
        # unknown name must be an error
        if any(amount > MAX_INT for amount in amounts.values()):
            matches = []
    except QueryError as error:
        raise errors.BadRequest(error.message, code=error.code or errors.UNDEFINED) from error
    except store_errors.TraitNotFound as error:
        raise errors.BadRequest(
            f'Invalid trait(s) in "required" parameter: No such trait(s): {error.names[0]}.'
        ) from error
    except store_errors.ResourceClassNotFound as error:
        raise errors.BadRequest(
            "Invalid resource class in resources parameter: "
            f"No such resource class {error.names[0]}."
        ) from error
    return json_response(
        {"resource_providers": [_representation(request, provider) for provider in matches]},
        *cache_headers(request.version, *(provider.last_modified for provider in matches)),
    )


def _find(request: Request, conditions: dict[str, Any]) -> list[Provider]:
    """Find by the index where few pass the filters, else by the store alone.

    The store filters the few again, so that a provider is shown as of the moment it passed.
    """
    group = _group(conditions)
    if group == RequestGroup(""):
        return request.store.read_single(providers.find, **conditions)
    if not any(conditions[name] for name in ("name", "uuid", "in_tree")):
        ids = request.services.candidates.provider_ids(group)
        if ids is not None:
            return request.store.read(providers.find, ids=ids, **conditions) if ids else []
    return request.store.read(providers.find, **conditions)


def _group(conditions: dict[str, Any]) -> RequestGroup:
    """Return the conditions that are not on the identity, as a group for one provider."""
    resources = tuple(conditions.get("resources", {}).items())
    others = {name: conditions[name] for name in _FILTERS if name in conditions}
    return RequestGroup("", resources, **others)


def _conditions(request: Request, params: dict[str, str]) -> tuple[dict[str, Any], dict[str, int]]:
    """Return the conditions of a query, and the amounts that it asks for."""
    # The parsers run in this order because the first failure is the one reported.
    version = request.version
    conditions: dict[str, Any] = {
        "name": params.get("name") or None,
        "uuid": params.get("uuid"),
        "in_tree": params.get("in_tree"),
    }
    if "member_of" in params:
        member_of, aggregates = filters.parse_member_of(request.all_of("member_of"), version)
        conditions.update(member_of=member_of, forbidden_aggregates=aggregates)
    if "required" in params:
        values = request.all_of("required") if version >= (1, 39) else [params["required"]]
        terms, forbidden_traits = filters.parse_required(values, version)
        conditions.update(required=terms, forbidden=forbidden_traits)
    amounts = filters.parse_resources(params["resources"]) if "resources" in params else {}
    if amounts:
        conditions["resources"] = {name: min(amount, MAX_INT) for name, amount in amounts.items()}
    filters.check_limits(list(_group(conditions).filters()))
    return conditions, amounts


def create(request: Request) -> Response:
    """Create a provider."""
    body = request.json(CREATE)
    name = body["name"]
    provider_uuid = str(uuid.UUID(body["uuid"]) if "uuid" in body else uuid.uuid4())
    try:
        provider = request.store.write(
            providers.create,
            uuid=provider_uuid,
            name=name,
            parent_uuid=body.get("parent_provider_uuid"),
        )
    except store_errors.ProviderNameTaken as error:
        raise _duplicate(f"name: {error.name}") from error
    except store_errors.ProviderUuidTaken as error:
        raise _duplicate(f"uuid: {error.uuid}") from error
    except store_errors.ProviderRefused as error:
        raise errors.BadRequest(
            f'Unable to create resource provider "{name}", {provider_uuid}: '
            f"Object action create failed because: {error}"
        ) from error
    location = request.location(f"/resource_providers/{provider.uuid}")
    if request.version < (1, 20):
        return empty_response(201, location)
    return json_response(
        _representation(request, provider),
        location,
        *cache_headers(request.version, provider.last_modified),
    )


def show(request: Request, provider_uuid: str) -> Response:
    """Show a provider."""
    provider = request.store.read_single(providers.get, provider_uuid)
    return json_response(
        _representation(request, provider),
        *cache_headers(request.version, provider.last_modified),
    )


def update(request: Request, provider_uuid: str) -> Response:
    """Rename a provider, or move it in or out of a tree."""
    body = request.json_for_provider(UPDATE, provider_uuid)
    try:
        provider = request.store.write(
            providers.update,
            provider_uuid,
            name=body["name"],
            parent_uuid=body.get("parent_provider_uuid", KEEP),
            reparenting_allowed=request.version >= (1, 37),
        )
    except store_errors.ProviderRefused as error:
        # the published server calls the update to a parent that does not exist a create
        action = "create" if isinstance(error, store_errors.ParentNotFound) else "update"
        raise errors.BadRequest(
            f"Unable to save resource provider {provider_uuid}: "
            f"Object action {action} failed because: {error}"
        ) from error
    except store_errors.ProviderNameTaken as error:
        raise _duplicate(error.name) from error
    return json_response(
        _representation(request, provider),
        *cache_headers(request.version, provider.last_modified),
    )


def delete(request: Request, provider_uuid: str) -> Response:
    """Delete a provider with its inventories and associations."""
    try:
        request.store.write(providers.delete, provider_uuid)
    except store_errors.ProviderNotFound as error:
        raise errors.NotFound(
            f"No resource provider with uuid {provider_uuid} found for delete"
        ) from error
    except store_errors.ProviderHasChildren as error:
        raise errors.Conflict(str(error), code=errors.PROVIDER_CANNOT_DELETE_PARENT) from error
    except store_errors.ProviderHasAllocations as error:
        raise errors.Conflict(str(error), code=errors.PROVIDER_INUSE) from error
    return empty_response(204)


def part_of(
    request: Request, read: Callable[[ReadTransaction, str], _Part], uuid: str, joint: str = ": "
) -> _Part:
    """Return the inventories, usages or traits of a provider.

    :raises errors.NotFound: the sentence is there twice, as clients of the published server see it,
        and compare.
    """
    try:
        return request.store.read_single(read, uuid)
    except store_errors.ProviderNotFound as error:
        text = f"No resource provider with uuid {uuid} found"
        raise errors.NotFound(f"{text}{joint}{text}") from error


def _duplicate(what: str) -> errors.Conflict:
    return errors.Conflict(
        f"Conflicting resource provider {what} already exists.", code=errors.DUPLICATE_NAME
    )


def _representation(request: Request, provider: Provider) -> dict[str, Any]:
    minor = request.version[1]
    url = request.link(f"/resource_providers/{provider.uuid}")
    links = [{"rel": "self", "href": url}]
    links += [{"rel": rel, "href": f"{url}/{rel}"} for rel, since in _LINKS if minor >= since]
    representation = {
        "uuid": provider.uuid,
        "name": provider.name,
        "generation": provider.generation,
        "links": links,
    }
    if minor >= 14:
        representation["parent_provider_uuid"] = provider.parent_uuid
        representation["root_provider_uuid"] = provider.root_uuid
    return representation
