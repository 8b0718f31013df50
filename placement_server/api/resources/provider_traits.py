"""Handlers of /resource_providers/{uuid}/traits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from placement_server import errors, limits
from placement_server.api.request import Request
from placement_server.api.resources.aggregates import generation_changed
from placement_server.api.resources.resource_providers import part_of
from placement_server.api.response import Response, cache_headers, empty_response, json_response
from placement_server.schemas.validation import WHOLE, SchemaByVersion, array_of, record_of
from placement_server.store import errors as store_errors
from placement_server.store.providers import traits
from placement_server.store.records import NameRow

_NAME: Final = {"type": "string", "minLength": 1, "maxLength": 255}
REPLACE: Final = SchemaByVersion(
    {
        6: record_of(
            "traits",
            "resource_provider_generation",
            traits=array_of(_NAME, maxItems=limits.NAMES),
            resource_provider_generation=WHOLE,
        )
    }
)


def list_(request: Request, provider_uuid: str) -> Response:
    """List the traits of a provider."""
    generation, rows = part_of(request, traits.of_provider, provider_uuid)
    return _answer(request, generation, rows)


def replace(request: Request, provider_uuid: str) -> Response:
    """Replace the traits of a provider. The body is checked before the provider."""
    body = request.json(REPLACE)
    try:
        generation, rows = request.store.write(
            traits.replace_of_provider,
            provider_uuid,
            body["traits"],
            generation=body["resource_provider_generation"],
        )
    except store_errors.ConcurrentUpdate as error:
        raise generation_changed() from error
    except store_errors.TraitNotFound as error:
        raise errors.BadRequest(
            f"No such trait {store_errors.joined_names(error.names)}"
        ) from error
    return _answer(request, generation, rows)


def delete(request: Request, provider_uuid: str) -> Response:
    """Remove all traits from a provider."""
    request.store.write(traits.delete_of_provider, provider_uuid)
    return empty_response(204)


def _answer(request: Request, generation: int, rows: Sequence[NameRow]) -> Response:
    return json_response(
        {
            "traits": [trait.name for trait in rows],
            "resource_provider_generation": generation,
        },
        *cache_headers(request.version, *(trait.last_modified for trait in rows)),
    )
