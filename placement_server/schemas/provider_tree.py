"""Bodies and answers of /provider_trees: whole trees of resource providers."""

from typing import Any, Final

from placement_server import limits
from placement_server.schemas.allocation import UUID_PATTERN
from placement_server.schemas.inventory import MAX_INT, RESOURCE_CLASS_PATTERN
from placement_server.schemas.validation import SchemaByVersion
from placement_server.store.trees.tree_write import Reason

_UUID: Final = {"type": "string", "pattern": UUID_PATTERN}
_ANY_UUID: Final = {"type": "string", "format": "uuid"}
_PARENT: Final = {"type": ["string", "null"], "pattern": UUID_PATTERN}
_NAME: Final = {"type": "string", "minLength": 1, "maxLength": 200}
_TRAIT: Final = {"type": "string", "pattern": "^[A-Z0-9_]+$", "maxLength": 255}
_ID: Final = {"type": "string", "minLength": 1, "maxLength": 255}
_GENERATION: Final = {"type": "integer"}
_AMOUNT: Final = {"type": "integer", "minimum": 1, "maximum": MAX_INT}


def _object(
    properties: dict[str, Any], *, required: list[str] | None = None, **more: Any
) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "required": list(properties) if required is None else required,
        **more,
    }


def _map(pattern: str, values: dict[str, Any], most: int = limits.NAMES) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "patternProperties": {pattern: values},
        "maxProperties": most,
    }


def _set(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items, "uniqueItems": True, "maxItems": limits.NAMES}


_INVENTORY: Final = _object(
    {
        "total": {"type": "integer", "minimum": 1, "maximum": MAX_INT},
        "reserved": {"type": "integer", "minimum": 0, "maximum": MAX_INT},
        "min_unit": {"type": "integer", "minimum": 1, "maximum": MAX_INT},
        "max_unit": {"type": "integer", "minimum": 1, "maximum": MAX_INT},
        "step_size": {"type": "integer", "minimum": 1, "maximum": MAX_INT},
        "allocation_ratio": {"type": "number", "minimum": -3.40282e38, "maximum": 3.40282e38},
    },
    required=["total"],
)
_AMOUNTS: Final = _map(
    UUID_PATTERN,
    _object({"resources": {**_map(RESOURCE_CLASS_PATTERN, _AMOUNT), "minProperties": 1}}),
)
_STOCK: Final = _map(RESOURCE_CLASS_PATTERN, _INVENTORY)

#: A key of a provider that is left out is left alone. ``generation`` is compared where it is given,
#: and has to be for a provider of another tree.
REPLACE: Final = SchemaByVersion(
    {
        0: _object(
            {
                "providers": {
                    "type": "array",
                    "maxItems": limits.NAMES,
                    "items": _object(
                        {
                            "uuid": _UUID,
                            "name": _NAME,
                            "parent_provider_uuid": _PARENT,
                            "generation": _GENERATION,
                            "inventories": _STOCK,
                            "traits": _set(_TRAIT),
                            "aggregates": _set(_ANY_UUID),
                        },
                        required=["uuid", "name", "parent_provider_uuid"],
                    ),
                },
                "absent": _set(_UUID),
                "allocations": _map(
                    UUID_PATTERN,
                    _object(
                        {
                            "allocations": _AMOUNTS,
                            "consumer_generation": {"type": ["integer", "null"]},
                            "project_id": _ID,
                            "user_id": _ID,
                            "consumer_type": {
                                "type": "string",
                                "pattern": "^([A-Z0-9_]+|unknown)$",
                                "maxLength": 255,
                            },
                        },
                        required=["allocations", "consumer_generation"],
                    ),
                    limits.CONSUMERS,
                ),
            },
            required=["providers"],
        )
    }
)

#: The query of GET; ``include`` may be repeated, and may have several values with commas.
SHOW: Final = SchemaByVersion(
    {
        0: {
            "type": "object",
            "properties": {
                "include": {
                    "type": "string",
                    "pattern": "^(usages|allocations)(,(usages|allocations))*$",
                }
            },
            "additionalProperties": False,
        }
    }
)

#: The answer: providers in preorder, children by name.
TREE: Final = _object(
    {
        "root_provider_uuid": _UUID,
        "providers": {
            "type": "array",
            "minItems": 1,
            "items": _object(
                {
                    "uuid": _UUID,
                    "name": {"type": "string"},
                    "parent_provider_uuid": _PARENT,
                    "generation": _GENERATION,
                    "inventories": {
                        "type": "object",
                        "additionalProperties": {**_INVENTORY, "required": ["total"]},
                    },
                    "traits": {"type": "array", "items": {"type": "string"}},
                    "aggregates": {"type": "array", "items": {"type": "string"}},
                    "usages": {
                        "type": "object",
                        "additionalProperties": {"type": "integer", "minimum": 0},
                    },
                },
                required=[
                    "uuid",
                    "name",
                    "parent_provider_uuid",
                    "generation",
                    "inventories",
                    "traits",
                    "aggregates",
                ],
            ),
        },
        "allocations": {
            "type": "object",
            "additionalProperties": _object(
                {
                    "allocations": {
                        "type": "object",
                        "additionalProperties": _object(
                            {
                                "resources": {
                                    "type": "object",
                                    "additionalProperties": {"type": "integer"},
                                }
                            }
                        ),
                    },
                    "project_id": {"type": "string"},
                    "user_id": {"type": "string"},
                    "consumer_generation": _GENERATION,
                    "consumer_type": {"type": "string"},
                }
            ),
        },
    },
    required=["root_provider_uuid", "providers"],
)

#: In a 412 and a 428: the generations that providers have now.
MOVED: Final = {"type": "array", "items": _object({"uuid": _UUID, "generation": _GENERATION})}

#: In a 409: all that stands against the request; null where that is of no provider, class or
#: consumer, or not about an amount.
CONFLICTS: Final = {
    "type": "array",
    "minItems": 1,
    "items": _object(
        {
            "code": {"type": "string", "pattern": "^placement\\."},
            "reason": {"enum": [reason.value for reason in Reason]},
            "detail": {"type": "string"},
            **{
                name: {"type": ["string", "null"]}
                for name in ("provider", "resource_class", "consumer")
            },
            **{name: {"type": ["integer", "null"]} for name in ("asked", "free")},
        }
    ),
}
