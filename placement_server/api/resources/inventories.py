"""Handlers of /resource_providers/{uuid}/inventories and .../inventories/{resource_class}."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from msgspec.structs import asdict

from placement_server import errors
from placement_server.api.request import Request
from placement_server.api.resources.resource_providers import part_of
from placement_server.api.response import (
    Response,
    cache_headers,
    empty_response,
    json_response,
    no_cache_headers,
)
from placement_server.policies import operations
from placement_server.schemas import inventory as schemas
from placement_server.store import errors as store_errors
from placement_server.store import resource_classes
from placement_server.store.providers import inventories, inventory_rows
from placement_server.store.records import InventoryRecord

_MAX_NUMBER: Final = 3.40282e38
"""The largest single-precision number: the column of the allocation ratio is one, and no other
column takes more."""


def list_(request: Request, provider_uuid: str) -> Response:
    """List the inventories of a provider."""
    generation, stored = part_of(request, inventory_rows.of_provider, provider_uuid, " : ")
    return _inventories_response(
        request,
        generation,
        {name: inventory.record for name, inventory in stored.items()},
        *(inventory.last_modified for inventory in stored.values()),
    )


def create(request: Request, provider_uuid: str) -> Response:
    """Add the inventory of one class. The generation in the body is ignored."""
    body = request.json_for_provider(schemas.CREATE, provider_uuid)
    resource_class = body["resource_class"]
    record = inventory_record(resource_class, body)
    try:
        provider = request.store.write(
            inventories.add,
            provider_uuid,
            resource_class,
            record,
            reserved_may_equal_total=_reserved_may_equal_total(request),
        )
    except (store_errors.ReservedTooLarge, store_errors.ResourceClassNotFound) as error:
        raise errors.BadRequest(
            f"Unable to create inventory for resource provider {provider_uuid}: {error}"
        ) from error
    except (store_errors.InventoryExists, store_errors.ConcurrentUpdate) as error:
        raise errors.Conflict(f"Update conflict: {error}", code=errors.CONCURRENT_UPDATE) from error
    location = request.location(f"/resource_providers/{provider_uuid}/inventories/{resource_class}")
    return _inventory_response(request, provider.generation, record, location, status=201)


def replace(request: Request, provider_uuid: str) -> Response:
    """Replace all inventories of a provider."""
    body = request.json_for_provider(
        schemas.REPLACE,
        provider_uuid,
        also=lambda body: inventory_records(body["inventories"]),
    )
    records = inventory_records(body["inventories"])
    try:
        provider = request.store.write(
            inventories.replace,
            provider_uuid,
            generation=body["resource_provider_generation"],
            records=records,
            reserved_may_equal_total=_reserved_may_equal_total(request),
        )
    except store_errors.ConcurrentUpdate as error:
        raise generation_conflict() from error
    except store_errors.ReservedTooLarge as error:
        raise errors.BadRequest(
            f"Unable to update inventory for resource provider {provider_uuid}: {error}"
        ) from error
    except store_errors.ResourceClassNotFound as error:
        raise errors.BadRequest(
            f"Unknown resource class in inventory for resource provider {provider_uuid}: "
            f"No such resource class {error.names[0]}."
        ) from error
    except store_errors.InventoryInUse as error:
        raise errors.Conflict(f"update conflict: {error}", code=errors.INVENTORY_INUSE) from error
    return _inventories_response(request, provider.generation, records)


def delete_all(request: Request, provider_uuid: str) -> Response:
    """Delete all inventories of a provider."""
    if request.version < (1, 5):
        raise errors.MethodNotAllowed
    request.authorise(operations.INVENTORIES_DELETE)
    try:
        request.store.write(inventories.delete_all, provider_uuid)
    except store_errors.InventoryInUse as error:
        raise errors.Conflict(str(error), code=errors.INVENTORY_INUSE) from error
    except store_errors.ConcurrentUpdate as error:
        raise errors.Conflict(
            f"Unable to delete inventory for resource provider {provider_uuid} because the "
            "inventory was updated by another process. Please retry your request.",
            code=errors.CONCURRENT_UPDATE,
        ) from error
    return empty_response(204)


def show(request: Request, provider_uuid: str, resource_class: str) -> Response:
    """Show the inventory of one class."""
    generation, stored_inventories = part_of(
        request, inventory_rows.of_provider, provider_uuid, " : "
    )
    if resource_class not in stored_inventories:
        raise errors.NotFound(f"No inventory of class {resource_class} for {provider_uuid}")
    stored = stored_inventories[resource_class]
    return _inventory_response(request, generation, stored.record, changed_at=stored.last_modified)


def update(request: Request, provider_uuid: str, resource_class: str) -> Response:
    """Replace the inventory of one class."""
    body = request.json_for_provider(schemas.UPDATE, provider_uuid)
    record = inventory_record(resource_class, body)
    try:
        provider = request.store.write(
            inventories.update_one,
            provider_uuid,
            resource_class,
            record,
            generation=body["resource_provider_generation"],
            reserved_may_equal_total=_reserved_may_equal_total(request),
        )
    except store_errors.ConcurrentUpdate as error:
        raise generation_conflict() from error
    except store_errors.ReservedTooLarge as error:
        raise errors.BadRequest(
            f"Unable to update inventory for resource provider {provider_uuid}: {error}"
        ) from error
    except store_errors.InventoryNotFound as error:
        raise errors.BadRequest(
            f"No inventory record with resource class for resource provider {provider_uuid}: "
            f"No inventory of class {resource_class} found."
        ) from error
    return _inventory_response(request, provider.generation, record)


def delete(request: Request, provider_uuid: str, resource_class: str) -> Response:
    """Delete the inventory of one class."""
    try:
        request.store.write(inventories.delete_one, provider_uuid, resource_class)
    except (store_errors.ResourceClassNotFound, store_errors.InventoryNotFound) as error:
        raise errors.NotFound(
            f"No inventory of class {resource_class} found for delete: "
            f"{_why_not_found(request, resource_class)}"
        ) from error
    except (store_errors.InventoryInUse, store_errors.ConcurrentUpdate) as error:
        raise errors.Conflict(
            f"Unable to delete inventory of class {resource_class}: {error}",
            code=errors.CONCURRENT_UPDATE,
        ) from error
    return empty_response(204)


def _why_not_found(request: Request, resource_class: str) -> str:
    try:
        request.store.read_single(resource_classes.get, resource_class)
    except store_errors.ResourceClassNotFound:
        return f"No such resource class {resource_class}."
    return f"No inventory of class {resource_class} found for delete"


def inventory_records(bodies: Mapping[str, Any]) -> dict[str, InventoryRecord]:
    """Return the records by resource class.

    The schema does not cover keys that cannot be class names, so their values are checked here;
    the store refuses the name itself, which no class has.

    :raises errors.BadRequest: a record under such a key is malformed.
    """
    return {name: inventory_record(name, body) for name, body in bodies.items()}


def inventory_record(resource_class: str, body: Any) -> InventoryRecord:
    """Return the record that a body describes, with defaults for the fields that it lacks."""
    if not isinstance(body, dict):
        raise _malformed_error(resource_class, f"{body!r} is not of type 'object'")
    fields = {name: body[name] for name in InventoryRecord.__struct_fields__ if name in body}
    if "total" not in fields:
        raise _malformed_error(resource_class, "'total' is a required property")
    for name, value in fields.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _malformed_error(resource_class, f"{name}: {value!r} is not a number")
        if value < -_MAX_NUMBER:
            raise _malformed_error(
                resource_class, f"{name}: {value} is less than the minimum of {-_MAX_NUMBER}"
            )
        if value > _MAX_NUMBER:
            raise _malformed_error(
                resource_class, f"{name}: {value} is greater than the maximum of {_MAX_NUMBER}"
            )
    return InventoryRecord(**fields)


def generation_conflict() -> errors.Conflict:
    """Return the 409 of a write with an outdated generation of the provider."""
    return errors.Conflict("resource provider generation conflict", code=errors.CONCURRENT_UPDATE)


def _malformed_error(resource_class: str, reason: str) -> errors.BadRequest:
    return errors.BadRequest(f"JSON does not validate: inventory of {resource_class!r}: {reason}")


def _reserved_may_equal_total(request: Request) -> bool:
    return request.version >= (1, 26)


def _inventories_response(
    request: Request,
    generation: int,
    by_class: Mapping[str, InventoryRecord],
    *changes: datetime,
) -> Response:
    headers = (
        cache_headers(request.version, *changes) if by_class else no_cache_headers(request.version)
    )
    return json_response(
        {
            "resource_provider_generation": generation,
            "inventories": {name: asdict(record) for name, record in by_class.items()},
        },
        *headers,
    )


def _inventory_response(
    request: Request,
    generation: int,
    record: InventoryRecord,
    *headers: tuple[str, str],
    changed_at: datetime | None = None,
    status: int = 200,
) -> Response:
    return json_response(
        {**asdict(record), "resource_provider_generation": generation},
        *headers,
        *cache_headers(request.version, changed_at),
        status=status,
    )
