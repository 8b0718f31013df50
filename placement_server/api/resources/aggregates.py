"""Handlers of /resource_providers/{uuid}/aggregates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from placement_server import errors, limits
from placement_server.api.request import Request
from placement_server.api.response import Response, cache_headers, json_response
from placement_server.schemas.validation import UUID, WHOLE, SchemaByVersion, array_of, record_of
from placement_server.store import errors as store_errors
from placement_server.store.providers import aggregates

_UUIDS: Final = array_of(UUID, uniqueItems=True, maxItems=limits.NAMES)
REPLACE: Final = SchemaByVersion(
    {
        1: _UUIDS,
        19: record_of(
            "aggregates",
            "resource_provider_generation",
            aggregates=_UUIDS,
            resource_provider_generation=WHOLE,
        ),
    }
)
"""A bare array before 1.19, then an object with the generation."""


def list_(request: Request, provider_uuid: str) -> Response:
    """List the aggregates of a provider."""
    generation, aggregate_uuids = request.store.read_single(aggregates.of_provider, provider_uuid)
    return _answer(request, generation, aggregate_uuids)


def replace(request: Request, provider_uuid: str) -> Response:
    """Replace the aggregates of a provider. Before 1.19 no generation is compared."""
    body = request.json_for_provider(REPLACE, provider_uuid)
    with_generation = request.version >= (1, 19)
    aggregate_uuids = body["aggregates"] if with_generation else body
    try:
        provider = request.store.write(
            aggregates.replace,
            provider_uuid,
            aggregate_uuids,
            generation=body["resource_provider_generation"] if with_generation else None,
        )
    except store_errors.ConcurrentUpdate as error:
        raise generation_changed() from error
    return _answer(request, provider.generation, aggregate_uuids)


def generation_changed() -> errors.Conflict:
    """Return the 409 of a write of aggregates or traits with an outdated generation."""
    return errors.Conflict(
        "Resource provider's generation already changed. "
        "Please update the generation and try again.",
        code=errors.CONCURRENT_UPDATE,
    )


def _answer(request: Request, generation: int, aggregate_uuids: Sequence[str]) -> Response:
    body: dict[str, Any] = {"aggregates": list(aggregate_uuids)}
    if request.version >= (1, 19):
        body["resource_provider_generation"] = generation
    return json_response(body, *cache_headers(request.version))
