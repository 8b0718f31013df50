"""Handlers of /resource_providers/{uuid}/usages and /usages."""

from __future__ import annotations

from typing import Any

from placement_server.api.request import Request
from placement_server.api.resources.resource_providers import no_such_provider_for
from placement_server.api.response import Response, cache_headers, json_response
from placement_server.policies import operations
from placement_server.schemas import usage as schemas
from placement_server.store import errors as store_errors
from placement_server.store.allocations import usages


def of_provider(request: Request, provider_uuid: str) -> Response:
    """Show the usage of each class that the provider has inventory of."""
    try:
        provider, used = request.store.read_single(usages.of_provider, provider_uuid)
    except store_errors.ProviderNotFound as error:
        raise no_such_provider_for(provider_uuid) from error
    return json_response(
        {"resource_provider_generation": provider.generation, "usages": used},
        *cache_headers(request.version),
    )


def of_project(request: Request) -> Response:
    """Show the usage of the consumers of a project, from 1.38 on by their type.

    The rule compares the caller's project with the one asked about, so that a reader may look at
    its own usage. Without the parameter there is nothing to compare, and a reader is refused.
    """
    target = {"project_id": request.last_params().get("project_id")}
    request.authorise(operations.TOTAL_USAGES, target)
    params = request.query(schemas.TOTAL)
    project_id, user_id = params["project_id"], params.get("user_id")
    body: dict[str, Any]
    if request.version < (1, 38):
        body = dict(request.store.read(usages.of_project, project_id, user_id))
    else:
        by_type = request.store.read(
            usages.by_consumer_type, project_id, user_id, params.get("consumer_type")
        )
        body = {
            consumer_type: {"consumer_count": usage.consumer_count, **usage.resources}
            for consumer_type, usage in by_type.items()
        }
    return json_response({"usages": body}, *cache_headers(request.version))
