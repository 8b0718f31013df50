"""Handlers of the routes that read and write allocations, by consumer and by provider."""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final

from oslo_utils import uuidutils

from placement_server import errors, limits
from placement_server.api.request import Request
from placement_server.api.response import Response, cache_headers, empty_response, json_response
from placement_server.metrics import metrics
from placement_server.negotiation.microversion import Microversion
from placement_server.schemas import allocation as schemas
from placement_server.store import errors as store_errors
from placement_server.store.allocations import allocations
from placement_server.store.records import (
    ANY,
    KEEP,
    AllocationRow,
    ConsumerRecord,
    ConsumerWrite,
)

LOG = logging.getLogger(__name__)

_USUAL_UUID: Final = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""How uuids are stored; others that OpenStack takes are brought into this form."""

_CLAIM_SECONDS: Final = {
    result: metrics.CLAIM_SECONDS.labels(result)
    for result in ("written", "refused", "lost", "failed")
}
"""Made once: each claim would look for one of them."""

_CAUSES: Final[dict[type[Exception], str]] = {
    store_errors.CapacityExceeded: "capacity",
    store_errors.ConstraintViolated: "units",
    store_errors.InvalidInventoryForAllocation: "inventory",
    store_errors.ConsumerGenerationConflict: "consumer_generation",
}
"""Causes of refusals in the metrics; all other errors are a `concurrent_update`."""


def of_consumer(request: Request, consumer_uuid: str) -> Response:
    """Show the allocations of a consumer. One without any is not an error."""
    consumer, rows = request.store.read(allocations.of_consumer, consumer_uuid)
    return json_response(
        holder_body(consumer, rows, request.version),
        *cache_headers(request.version, *(row.last_modified for row in rows)),
    )


def holder_body(
    consumer: ConsumerRecord | None, rows: Iterable[AllocationRow], version: Microversion
) -> dict[str, Any]:
    """Return a consumer and its allocations as a microversion shows them."""
    holdings: dict[str, dict[str, Any]] = {}
    for row in rows:
        at_provider = holdings.setdefault(
            row.provider_uuid, {"resources": {}, "generation": row.provider_generation}
        )
        at_provider["resources"][row.resource_class] = row.used
    body: dict[str, Any] = {"allocations": holdings}
    if holdings and consumer is not None:
        if version >= (1, 12):
            body["project_id"] = consumer.project_id
            body["user_id"] = consumer.user_id
        if version >= (1, 28):
            body["consumer_generation"] = consumer.generation
        if version >= (1, 38):
            body["consumer_type"] = consumer.consumer_type or "unknown"
    return body


def of_provider(request: Request, provider_uuid: str) -> Response:
    """Show the allocations against a provider, by consumer."""
    try:
        provider, holders = request.store.read(allocations.of_provider, provider_uuid)
    except store_errors.ProviderNotFound as error:
        raise errors.NotFound(
            f"Resource provider '{provider_uuid}' not found: "
            f"No resource provider with uuid {provider_uuid} found"
        ) from error
    holdings: dict[str, dict[str, Any]] = {}
    changes: list[datetime] = []
    for consumer, rows in holders:
        holdings[consumer.uuid] = {"resources": {row.resource_class: row.used for row in rows}}
        if request.version >= (1, 28):
            holdings[consumer.uuid]["consumer_generation"] = consumer.generation
        changes.extend(row.last_modified for row in rows)
    return json_response(
        {"allocations": holdings, "resource_provider_generation": provider.generation},
        *cache_headers(request.version, *changes),
    )


def replace(request: Request, requested_uuid: str) -> Response:
    """Replace the allocations of one consumer."""
    consumer_uuid = requested_uuid
    if not _USUAL_UUID.fullmatch(requested_uuid):
        if not uuidutils.is_uuid_like(requested_uuid):
            raise errors.BadRequest(f"Malformed consumer_uuid: {requested_uuid}")
        consumer_uuid = str(uuid.UUID(requested_uuid))
    body = request.json(schemas.PUT)
    if request.version < (1, 12):
        # Of a provider listed twice the later entry counts, as in the object form.
        body["allocations"] = {
            entry["resource_provider"]["uuid"]: entry for entry in body["allocations"]
        }
    write = consumer_write(request, consumer_uuid, body)
    check_names([write])
    _write(
        request,
        [write],
        unknown_class=f"Unable to allocate inventory for consumer {consumer_uuid}: ",
    )
    return empty_response(204)


def replace_many(request: Request) -> Response:
    """Replace the allocations of several consumers, all or none."""
    body = request.json(schemas.POST)
    writes = consumer_writes(request, body)
    check_names(writes)
    _write(request, writes, unknown_class="Unable to allocate inventory ")
    return empty_response(204)


def delete(request: Request, consumer_uuid: str) -> Response:
    """Delete all allocations of a consumer."""
    request.store.write(allocations.delete, consumer_uuid)
    return empty_response(204)


def consumer_writes(request: Request, bodies: Mapping[str, Any]) -> list[ConsumerWrite]:
    """Return the writes that the body of POST asks for, in its order."""
    return [consumer_write(request, consumer, body) for consumer, body in bodies.items()]


def consumer_write(request: Request, consumer_uuid: str, body: Mapping[str, Any]) -> ConsumerWrite:
    """Return the write that the body for one consumer asks for, with defaults by version."""
    return ConsumerWrite(
        uuid=consumer_uuid,
        allocations={
            provider: entry["resources"] for provider, entry in body["allocations"].items()
        },
        project_id=body.get("project_id", request.services.incomplete_project_id),
        user_id=body.get("user_id", request.services.incomplete_user_id),
        consumer_type=body.get("consumer_type", KEEP),
        expected_generation=body["consumer_generation"] if request.version >= (1, 28) else ANY,
    )


def check_names(
    writes: Sequence[ConsumerWrite], inventories: Mapping[str, Collection[str]] | None = None
) -> None:
    """Refuse a body that names too many providers or classes in all its parts together.

    :param inventories: the classes that a reshape names, by provider.
    """
    stock = inventories or {}
    parts = [part for write in writes for part in write.allocations.items()]
    if not stock and sum([1 + len(amounts) for _, amounts in parts]) <= limits.NAMES:
        return
    providers = {*stock, *(provider for provider, _ in parts)}
    classes = set[str]().union(*stock.values(), *(amounts for _, amounts in parts))
    for names, kind in ((providers, "resource providers"), (classes, "resource classes")):
        if len(names) > limits.NAMES:
            message = limits.too_many("the body", len(names), kind, limits.NAMES)
            raise errors.BadRequest(f"JSON does not validate: {message}")


def _write(request: Request, writes: Sequence[ConsumerWrite], *, unknown_class: str) -> None:
    try:
        with counted_claim():
            request.store.write(allocations.write, writes)
    except store_errors.ProviderNotFound as error:
        raise no_such_provider_to_allocate_from(error) from error
    except store_errors.ResourceClassNotFound as error:
        raise errors.BadRequest(
            f"{unknown_class}No such resource class {error.names[0]}."
        ) from error
    except (store_errors.AllocationRefused, store_errors.StaleWrite) as error:
        raise claim_conflict(error) from error


@contextmanager
def counted_claim() -> Iterator[None]:
    """Count a write of allocations, and its cause if it is refused or lost."""
    began = time.perf_counter()
    result = "failed"
    try:
        yield
        result = "written"
    except (store_errors.AllocationRefused, store_errors.StaleWrite) as error:
        result = "lost" if isinstance(error, store_errors.StaleWrite) else "refused"
        cause = _CAUSES.get(type(error), "concurrent_update")
        metrics.CLAIMS_REJECTED.labels(cause).inc()
        raise
    except (store_errors.ProviderNotFound, store_errors.ResourceClassNotFound):
        result = "refused"
        raise
    finally:
        _CLAIM_SECONDS[result].observe(time.perf_counter() - began)


def no_such_provider_to_allocate_from(error: store_errors.ProviderNotFound) -> errors.BadRequest:
    """Return the 400 of allocations that name an unknown provider."""
    return errors.BadRequest(
        f"Allocation for resource provider '{error.uuid}' that does not exist."
    )


def claim_conflict(
    error: store_errors.AllocationRefused | store_errors.StaleWrite,
) -> errors.Conflict:
    """Return the 409 of allocations that do not fit, or whose writer lost a race.

    Clients get the wording that they know. The log has what was asked and what is free.
    """
    LOG.log(
        logging.WARNING if isinstance(error, store_errors.AllocationRefused) else logging.INFO,
        "Allocations were not written: %s",
        error,
    )
    match error:
        case store_errors.InvalidInventoryForAllocation():
            classes = store_errors.joined_names(error.resource_classes)
            providers = store_errors.joined_names(error.uuids)
            return errors.Conflict(
                f"Unable to allocate inventory: Inventory for '{classes}' on resource provider "
                f"'{providers}' invalid."
            )
        case store_errors.ConstraintViolated():
            return _refusal(error, "would violate inventory constraints.")
        case store_errors.CapacityExceeded():
            return _refusal(error, "would exceed the capacity.")
        case store_errors.ConsumerGenerationConflict():
            stored_generation = error.stored_generation
            return errors.Conflict(
                "consumer generation conflict - expected "
                f"{'null' if stored_generation is None else stored_generation} but got "
                f"{error.requested_generation}",
                code=errors.CONCURRENT_UPDATE,
            )
        case _:
            of_providers = isinstance(error, store_errors.ConcurrentUpdate) and error.uuids
            what = "the resource provider data" if of_providers else "the data"
            return errors.Conflict(
                "Inventory and/or allocations changed while attempting to allocate: Another "
                f"thread concurrently updated {what}. Please retry your update",
                code=errors.CONCURRENT_UPDATE,
            )


def _refusal(
    error: store_errors.ConstraintViolated | store_errors.CapacityExceeded, reason: str
) -> errors.Conflict:
    return errors.Conflict(
        f"Unable to allocate inventory: Unable to create allocation for "
        f"'{error.resource_class}' on resource provider '{error.uuid}'. "
        f"The requested amount {reason}"
    )
