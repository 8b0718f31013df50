"""Query and answer of /provider_trees: whole trees of resource providers."""

from typing import Final

from placement_server.schemas.allocation import UUID_PATTERN
from placement_server.schemas.validation import (
    COUNT,
    TEXT,
    array_of,
    exact_object,
    map_of,
    optional,
    query_of,
)

_UUID: Final = {"type": "string", "pattern": UUID_PATTERN}
_INTEGER: Final = {"type": "integer"}
_PART: Final = "(usages|allocations|sharing)"

SHOW: Final = query_of(include={"type": "string", "pattern": f"^{_PART}(,{_PART})*$"})
"""The query of GET; `include` may be repeated, and may have several values with commas."""

_INVENTORY: Final = exact_object(
    **dict.fromkeys(("total", "reserved", "min_unit", "max_unit", "step_size"), _INTEGER),
    allocation_ratio={"type": "number"},
)
_PROVIDER: Final = exact_object(
    uuid=_UUID,
    name=TEXT,
    parent_provider_uuid={"type": ["string", "null"], "pattern": UUID_PATTERN},
    generation=_INTEGER,
    inventories=map_of(_INVENTORY),
    traits=array_of(TEXT),
    aggregates=array_of(TEXT),
    usages=map_of(COUNT),
)
_HOLDER: Final = exact_object(
    allocations=map_of(exact_object(generation=_INTEGER, resources=map_of(_INTEGER))),
    project_id=TEXT,
    user_id=TEXT,
    consumer_generation=_INTEGER,
    consumer_type=TEXT,
)

_TREE: Final = exact_object(
    root_provider_uuid=_UUID,
    providers=array_of(optional(_PROVIDER, "usages"), minItems=1),
    sharing_providers=array_of(optional(_PROVIDER, "usages")),
    allocations=map_of(_HOLDER),
)

TREE: Final = optional(_TREE, "sharing_providers", "allocations")
"""The answer: providers in preorder, children by name; sharing providers by name."""
