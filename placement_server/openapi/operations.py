"""The operations of the API, each with a sentence and its statuses.

A test fails when a route is missing here.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from placement_server.api.extensions import (
    agent_reports,
    candidate_explanation,
    capacity,
    changes,
    history,
    make_room,
    provider_trees,
    what_if,
)
from placement_server.api.resources import (
    aggregates,
    allocation_candidates,
    provider_traits,
    reshaper,
    resource_classes,
    resource_providers,
    traits,
    usages,
)
from placement_server.negotiation.microversion import Microversion
from placement_server.schemas import allocation, inventory
from placement_server.schemas.validation import SchemaByVersion

Document = dict[str, Any]


class Operation(Struct, frozen=True):
    """One method of one path.

    :ivar statuses: those of its answers beside the 400, 401, 403 and 406 that all may.
    :ivar body: schemas of the request body; None when there is none.
    :ivar query: schemas of the query string; None when it is ignored.
    :ivar result: schema of the body of a 200; None where it is not written down.
    :ivar headers: request headers of its own, with what they are for.
    :ivar later: the later versions of the extensions that changed the body of a 200, with its
        schema.
    """

    summary: str
    statuses: tuple[int, ...]
    body: SchemaByVersion | None = None
    query: SchemaByVersion | None = None
    result: Document | None = None
    headers: tuple[tuple[str, str], ...] = ()
    later: tuple[tuple[Microversion, Document], ...] = ()


_PROVIDER: Final = "/resource_providers/{uuid}"

OPERATIONS: Final[dict[tuple[str, str], Operation]] = {
    ("GET", "/"): Operation("The versions served; needs no token", (200,)),
    ("GET", "/resource_classes"): Operation("All resource classes", (200, 404)),
    ("POST", "/resource_classes"): Operation(
        "Create a custom resource class", (201, 404, 409, 415), body=resource_classes.NAMED
    ),
    ("GET", "/resource_classes/{name}"): Operation("One resource class", (200, 404)),
    ("PUT", "/resource_classes/{name}"): Operation(
        "Ensure that a custom resource class exists; before 1.7, rename it", (201, 204, 404)
    ),
    ("DELETE", "/resource_classes/{name}"): Operation(
        "Delete a custom resource class that no inventory has", (204, 404, 409)
    ),
    ("GET", "/resource_providers"): Operation(
        "Resource providers, filtered", (200,), query=resource_providers.LIST
    ),
    ("POST", "/resource_providers"): Operation(
        "Create a resource provider", (200, 201, 409, 415), body=resource_providers.CREATE
    ),
    ("GET", _PROVIDER): Operation("One resource provider", (200, 404)),
    ("PUT", _PROVIDER): Operation(
        "Rename a resource provider, or move it in its tree",
        (200, 404, 409, 415),
        body=resource_providers.UPDATE,
    ),
    ("DELETE", _PROVIDER): Operation(
        "Delete a provider without children and allocations", (204, 404, 409)
    ),
    ("GET", f"{_PROVIDER}/inventories"): Operation("All inventories", (200, 404)),
    ("POST", f"{_PROVIDER}/inventories"): Operation(
        "Add one inventory", (201, 404, 409, 415), body=inventory.CREATE
    ),
    ("PUT", f"{_PROVIDER}/inventories"): Operation(
        "Replace all inventories", (200, 404, 409, 415), body=inventory.REPLACE
    ),
    ("DELETE", f"{_PROVIDER}/inventories"): Operation(
        "Delete all inventories", (204, 404, 405, 409)
    ),
    ("GET", f"{_PROVIDER}/inventories/{{resource_class}}"): Operation("One inventory", (200, 404)),
    ("PUT", f"{_PROVIDER}/inventories/{{resource_class}}"): Operation(
        "Replace one inventory", (200, 404, 409, 415), body=inventory.UPDATE
    ),
    ("DELETE", f"{_PROVIDER}/inventories/{{resource_class}}"): Operation(
        "Delete one inventory", (204, 404, 409)
    ),
    ("GET", f"{_PROVIDER}/usages"): Operation("Usage by resource class", (200, 404)),
    ("GET", f"{_PROVIDER}/aggregates"): Operation("Aggregates of a provider", (200, 404)),
    ("PUT", f"{_PROVIDER}/aggregates"): Operation(
        "Replace the aggregates of a provider", (200, 404, 409, 415), body=aggregates.REPLACE
    ),
    ("GET", f"{_PROVIDER}/allocations"): Operation("Who holds what of a provider", (200, 404)),
    ("GET", f"{_PROVIDER}/traits"): Operation("Traits of a provider", (200, 404)),
    ("PUT", f"{_PROVIDER}/traits"): Operation(
        "Replace the traits of a provider", (200, 404, 409, 415), body=provider_traits.REPLACE
    ),
    ("DELETE", f"{_PROVIDER}/traits"): Operation(
        "Remove all traits of a provider", (204, 404, 409)
    ),
    ("POST", "/allocations"): Operation(
        "Replace the allocations of several consumers at once",
        (204, 404, 409, 415),
        body=allocation.POST,
    ),
    ("GET", "/allocations/{consumer_uuid}"): Operation("What a consumer holds", (200,)),
    ("PUT", "/allocations/{consumer_uuid}"): Operation(
        "Replace all that a consumer holds", (204, 409, 415), body=allocation.PUT
    ),
    ("DELETE", "/allocations/{consumer_uuid}"): Operation(
        "Take everything from a consumer", (204, 404)
    ),
    ("GET", "/allocation_candidates"): Operation(
        "Ways to satisfy a request", (200, 404, 503), query=allocation_candidates.LIST
    ),
    ("GET", "/candidate_explanation"): Operation(
        "Why a request has few allocation candidates or none",
        (200, 404, 503),
        query=allocation_candidates.EXTENDED,
        result=candidate_explanation.EXPLANATION,
        later=((Microversion(1, 1), candidate_explanation.EXPLANATION_WITH_CLOSEST),),
    ),
    ("GET", "/agent_reports"): Operation(
        "When the agents of hosts reported last, and what they said of themselves",
        (200,),
        query=agent_reports.QUERY,
        result=agent_reports.REPORTS,
    ),
    ("GET", "/changes"): Operation(
        "What was written, in order, as it happens",
        (200, 410, 503),
        query=changes.QUERY,
        result=changes.CHANGES,
    ),
    ("GET", "/history"): Operation(
        "What was changed, of which host and consumer, when and by whom",
        (200,),
        query=history.QUERY,
        result=history.HISTORY,
    ),
    ("GET", "/provider_trees/{uuid}"): Operation(
        "A whole provider tree",
        (200, 304, 404),
        query=provider_trees.SHOW,
        result=provider_trees.TREE,
        headers=(
            ("If-None-Match", "ETags that the client has: 304 if the present one is there."),
            (agent_reports.HEADER, "What the agent of the host reports of itself, as JSON."),
        ),
    ),
    ("POST", "/what_if"): Operation(
        "Answers about the fleet as it would be after some changes",
        (200, 404, 409, 415, 503),
        body=what_if.WHAT_IF,
        result=what_if.ANSWERS,
    ),
    ("POST", "/make_room"): Operation(
        "Plans of a few moves after which a request fits, trees are empty, or both",
        (200, 404, 415),
        body=make_room.MAKE_ROOM,
        result=make_room.ROOM,
    ),
    ("GET", "/capacity"): Operation(
        "How many further claims of a request would succeed, one after the other",
        (200, 404, 503),
        query=allocation_candidates.EXTENDED,
        result=capacity.CAPACITY,
    ),
    ("GET", "/fragmentation"): Operation(
        "What is free of each class, what of it is stranded, and how many of some shapes fit",
        (200, 404, 503),
        query=capacity.FRAGMENTATION_QUERY,
        result=capacity.FRAGMENTATION,
    ),
    ("GET", "/traits"): Operation("All traits, filtered", (200, 404), query=traits.LIST),
    ("GET", "/traits/{name}"): Operation("Whether a trait exists", (204, 404)),
    ("PUT", "/traits/{name}"): Operation("Ensure that a custom trait exists", (201, 204, 404)),
    ("DELETE", "/traits/{name}"): Operation(
        "Delete a custom trait that no provider has", (204, 404, 409)
    ),
    ("GET", "/usages"): Operation("Usage of a project", (200, 404), query=usages.TOTAL),
    ("POST", "/reshaper"): Operation(
        "Move inventories and the allocations against them, atomically",
        (204, 404, 409, 415),
        body=reshaper.RESHAPE,
    ),
}
