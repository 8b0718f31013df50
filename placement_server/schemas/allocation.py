"""Bodies of PUT and POST /allocations; the reshaper takes the latter as well."""

from typing import Any, Final

from placement_server import limits
from placement_server.schemas.inventory import RESOURCE_CLASS_PATTERN
from placement_server.schemas.validation import SchemaByVersion

UUID_PATTERN: Final = "^[0-9a-fA-F-]{36}$"

_ID: Final = {"type": "string", "minLength": 1, "maxLength": 255}
_RESOURCES: Final = {
    "type": "object",
    "minProperties": 1,
    "patternProperties": {RESOURCE_CLASS_PATTERN: {"type": "integer", "minimum": 1}},
    "additionalProperties": False,
    "maxProperties": limits.NAMES,
}

_LIST: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "allocations": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "properties": {
                    "resource_provider": {
                        "type": "object",
                        "properties": {"uuid": {"type": "string", "format": "uuid"}},
                        "additionalProperties": False,
                        "required": ["uuid"],
                    },
                    "resources": _RESOURCES,
                },
                "required": ["resource_provider", "resources"],
                "additionalProperties": False,
            },
            "maxItems": limits.NAMES,
        }
    },
    "required": ["allocations"],
    "additionalProperties": False,
}
_LIST_1_8: Final[dict[str, Any]] = {
    **_LIST,
    "properties": {**_LIST["properties"], "project_id": _ID, "user_id": _ID},
    "required": ["allocations", "project_id", "user_id"],
}

_GENERATION: Final = {
    "consumer_generation": {"type": ["integer", "null"], "additionalProperties": False}
}
_MAPPINGS: Final = {
    "mappings": {
        "type": "object",
        "minProperties": 1,
        "patternProperties": {
            "[a-zA-Z0-9_-]{1,64}": {
                "type": "array",
                "minItems": 1,
                "items": {"type": "string", "format": "uuid"},
                "maxItems": limits.NAMES,
            }
        },
        "maxProperties": limits.GROUPS,
    }
}
_CONSUMER_TYPE: Final = {
    "consumer_type": {
        "type": "string",
        "pattern": RESOURCE_CLASS_PATTERN,
        "minLength": 1,
        "maxLength": 255,
    }
}


ALLOCATIONS: Final[dict[str, Any]] = {
    "type": "object",
    "minProperties": 1,
    "patternProperties": {
        UUID_PATTERN: {
            "type": "object",
            "properties": {"generation": {"type": "integer"}, "resources": _RESOURCES},
            "required": ["resources"],
            "additionalProperties": False,
        }
    },
    "additionalProperties": False,
    "maxProperties": limits.NAMES,
}


def _consumer(
    *added_properties: dict[str, Any], required: tuple[str, ...] = (), empty_allowed: bool
) -> dict[str, Any]:
    extra: dict[str, Any] = {}
    for properties in added_properties:
        extra.update(properties)
    return {
        "type": "object",
        "properties": {
            "allocations": {**ALLOCATIONS, "minProperties": 0 if empty_allowed else 1},
            "project_id": _ID,
            "user_id": _ID,
            **extra,
        },
        "additionalProperties": False,
        "required": ["allocations", "project_id", "user_id", *required],
    }


_CONSUMERS: Final = {
    28: _consumer(_GENERATION, required=("consumer_generation",), empty_allowed=True),
    34: _consumer(_GENERATION, _MAPPINGS, required=("consumer_generation",), empty_allowed=True),
    38: _consumer(
        _GENERATION,
        _MAPPINGS,
        _CONSUMER_TYPE,
        required=("consumer_generation", "consumer_type"),
        empty_allowed=True,
    ),
}


def _consumers(consumer: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "minProperties": 1,
        "additionalProperties": False,
        "patternProperties": {UUID_PATTERN: consumer},
        "maxProperties": limits.CONSUMERS,
    }


POST_SCHEMAS: Final = {
    13: _consumers(_consumer(empty_allowed=True)),
    **{minor: _consumers(consumer) for minor, consumer in _CONSUMERS.items()},
}
"""The schema of POST /allocations by the minor that began it."""

PUT: Final = SchemaByVersion(
    {0: _LIST, 8: _LIST_1_8, 12: _consumer(empty_allowed=False), **_CONSUMERS}
)
POST: Final = SchemaByVersion(POST_SCHEMAS)
