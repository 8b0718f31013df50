"""Handlers of /resource_providers/{uuid}/usages and /usages."""

from __future__ import annotations

from typing import Any, Final

from placement_server.api.request import Request
from placement_server.api.resources.resource_providers import part_of
from placement_server.api.response import Response, cache_headers, json_response
from placement_server.policies import operations
from placement_server.schemas.validation import SchemaByVersion, record_of
from placement_server.store.allocations import usages

_ID: Final = {"type": "string", "minLength": 1, "maxLength": 255}
_OWNER: Final[dict[str, Any]] = {"project_id": _ID, "user_id": _ID}
# "all" is not anchored at its end; clients have seen it so since 1.38.
_TYPE: Final = {
    "type": "string",
    "pattern": "^[A-Z0-9_]+$|^all|^unknown$",
    "minLength": 1,
    "maxLength": 255,
}
TOTAL: Final = SchemaByVersion(
    {
        9: record_of("project_id", **_OWNER),
        38: record_of("project_id", **_OWNER, consumer_type=_TYPE),
    },
    strict_uuids=True,
)


def of_provider(request: Request, provider_uuid: str) -> Response:
    """Show the usage of each class that the provider has inventory of."""
    generation, used = part_of(request, usages.of_provider, provider_uuid)
    return json_response(
        {"resource_provider_generation": generation, "usages": used},
        *cache_headers(request.version),
    )


def of_project(request: Request) -> Response:
    """Show the usage of the consumers of a project, from 1.38 on by their type.

    The rule compares the caller's project with the one asked about, so that a reader may look at
    its own usage. Without the parameter there is nothing to compare, and a reader is refused.
    """
    target = {"project_id": request.last_params().get("project_id")}
    request.authorise(operations.TOTAL_USAGES, target)
    params = request.query(TOTAL)
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
