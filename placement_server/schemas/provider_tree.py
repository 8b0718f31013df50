"""Query and answer of /provider_trees: whole trees of resource providers."""

from typing import Any, Final

from placement_server.schemas.allocation import UUID_PATTERN
from placement_server.schemas.validation import SchemaByVersion

_UUID: Final = {"type": "string", "pattern": UUID_PATTERN}
_TEXT: Final = {"type": "string"}
_INTEGER: Final = {"type": "integer"}
_PART: Final = "(usages|allocations|sharing)"


def _object(properties: dict[str, Any], *optional: str) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "required": [name for name in properties if name not in optional],
    }


def _map(values: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": values}


SHOW: Final = SchemaByVersion(
    {
        0: {
            "type": "object",
            "properties": {
                "include": {
                    "type": "string",
                    "pattern": f"^{_PART}(,{_PART})*$",
                }
            },
            "additionalProperties": False,
        }
    }
)
"""The query of GET; `include` may be repeated, and may have several values with commas."""

_INVENTORY: Final = _object(
    {
        **dict.fromkeys(("total", "reserved", "min_unit", "max_unit", "step_size"), _INTEGER),
        "allocation_ratio": {"type": "number"},
    }
)

_PROVIDER: Final = _object(
    {
        "uuid": _UUID,
        "name": _TEXT,
        "parent_provider_uuid": {"type": ["string", "null"], "pattern": UUID_PATTERN},
        "generation": _INTEGER,
        "inventories": _map(_INVENTORY),
        "traits": {"type": "array", "items": _TEXT},
        "aggregates": {"type": "array", "items": _TEXT},
        "usages": _map({"type": "integer", "minimum": 0}),
    },
    "usages",
)

TREE: Final = _object(
    {
        "root_provider_uuid": _UUID,
        "providers": {"type": "array", "minItems": 1, "items": _PROVIDER},
        "sharing_providers": {"type": "array", "items": _PROVIDER},
        "allocations": _map(
            _object(
                {
                    "allocations": _map(
                        _object({"generation": _INTEGER, "resources": _map(_INTEGER)})
                    ),
                    "project_id": _TEXT,
                    "user_id": _TEXT,
                    "consumer_generation": _INTEGER,
                    "consumer_type": _TEXT,
                }
            )
        ),
    },
    "sharing_providers",
    "allocations",
)
"""The answer: providers in preorder, children by name; sharing providers by name."""
