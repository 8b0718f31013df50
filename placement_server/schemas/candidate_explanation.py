"""The answer of the route that explains a search for allocation candidates."""

from typing import Any, Final

_COUNT: Final = {"type": "integer", "minimum": 0}

EXPLANATION: Final[dict[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["trees", "steps", "trees_left", "trees_failed", "sentences"],
    "properties": {
        "trees": _COUNT,
        "steps": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["group", "filter"],
                "properties": {
                    "group": {"type": ["string", "null"]},
                    "filter": {"type": "string"},
                    "providers_left": _COUNT,
                    "trees_rejected": _COUNT,
                },
            },
        },
        "trees_left": _COUNT,
        "trees_failed": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["reason", "trees", "example"],
                "properties": {
                    "reason": {"type": "string"},
                    "trees": _COUNT,
                    "example": {"type": "string", "format": "uuid"},
                },
            },
        },
        "sentences": {"type": "array", "items": {"type": "string"}},
    },
}
"""`group` is a suffix, "" for the unsuffixed group, null for what is asked of roots."""

_GROUP: Final = {"type": ["string", "null"]}
_AMOUNT: Final = {"type": "integer", "minimum": 1}


def _dropped_schemas(*keys: str) -> list[dict[str, Any]]:
    return [
        {
            "type": "object",
            "additionalProperties": False,
            "required": ["group", key],
            "properties": {"group": _GROUP, key: {"type": "string"}},
        }
        for key in keys
    ]


_CHANGE: Final = {
    "oneOf": [
        {
            "type": "object",
            "additionalProperties": False,
            "required": ["group", "resource_class", "from", "to"],
            "properties": {
                "group": {"type": "string"},
                "resource_class": {"type": "string"},
                "from": _AMOUNT,
                "to": _AMOUNT,
            },
        },
        *_dropped_schemas(
            "drop_trait",
            "allow_trait",
            "drop_aggregate",
            "allow_aggregate",
            "drop_in_tree",
            "drop_same_subtree",
            "drop_group_policy",
            "drop_isolate",
            "drop_root_required",
        ),
    ]
}

EXPLANATION_WITH_CLOSEST: Final[dict[str, Any]] = {
    **EXPLANATION,
    "required": [*EXPLANATION["required"], "closest", "short", "complete"],
    "properties": {
        **EXPLANATION["properties"],
        "closest": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["changes", "trees", "example"],
                "properties": {
                    "changes": {"type": "array", "minItems": 1, "maxItems": 2, "items": _CHANGE},
                    "trees": {"type": "integer", "minimum": 1},
                    "example": {"type": "string", "format": "uuid"},
                },
            },
        },
        "short": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": [
                    "group",
                    "provider",
                    "name",
                    "resource_class",
                    "asked",
                    "free",
                    "capacity",
                    "held_by",
                ],
                "properties": {
                    "group": {"type": "string"},
                    "provider": {"type": "string", "format": "uuid"},
                    "name": {"type": "string"},
                    "resource_class": {"type": "string"},
                    "asked": _AMOUNT,
                    "free": _COUNT,
                    "capacity": {"type": "integer"},
                    "held_by": _COUNT,
                    "min_unit": _AMOUNT,
                    "max_unit": _AMOUNT,
                    "step_size": _AMOUNT,
                },
            },
        },
        "complete": {"type": "boolean"},
    },
}
"""From placement-ext 1.1 on. In a change `group` is a suffix, null for the query as a whole and
for what is asked of roots. A unit of an inventory is shown where it forbids the amount."""
