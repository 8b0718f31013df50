"""Bodies of PUT and POST /allocations; the reshaper takes the latter as well."""

from typing import Any, Final

from placement_server import limits
from placement_server.schemas.inventory import RESOURCE_CLASS_PATTERN
from placement_server.schemas.validation import UUID, WHOLE, SchemaByVersion, record_of

UUID_PATTERN: Final = "^[0-9a-fA-F-]{36}$"

_ID: Final = {"type": "string", "minLength": 1, "maxLength": 255}
_OWNER: Final[dict[str, Any]] = {"project_id": _ID, "user_id": _ID}
_RESOURCES: Final = {
    "type": "object",
    "minProperties": 1,
    "patternProperties": {RESOURCE_CLASS_PATTERN: {"type": "integer", "minimum": 1}},
    "additionalProperties": False,
    "maxProperties": limits.NAMES,
}
_LIST: Final = {
    "type": "array",
    "minItems": 1,
    "items": record_of(
        "resource_provider",
        "resources",
        resource_provider={
            "type": "object",
            "properties": {"uuid": UUID},
            "additionalProperties": False,
            "required": ["uuid"],
        },
        resources=_RESOURCES,
    ),
    "maxItems": limits.NAMES,
}

_GENERATION: Final[dict[str, Any]] = {
    "consumer_generation": {"type": ["integer", "null"], "additionalProperties": False}
}
_MAPPINGS: Final[dict[str, Any]] = {
    "mappings": {
        "type": "object",
        "minProperties": 1,
        "patternProperties": {
            "[a-zA-Z0-9_-]{1,64}": {
                "type": "array",
                "minItems": 1,
                "items": UUID,
                "maxItems": limits.NAMES,
            }
        },
        "maxProperties": limits.GROUPS,
    }
}
_CONSUMER_TYPE: Final[dict[str, Any]] = {
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
        UUID_PATTERN: record_of("resources", generation=WHOLE, resources=_RESOURCES)
    },
    "additionalProperties": False,
    "maxProperties": limits.NAMES,
}


def _consumer(*required: str, least: int = 0, **added_properties: object) -> dict[str, Any]:
    allocations = {**ALLOCATIONS, "minProperties": least}
    return {
        "type": "object",
        "properties": {"allocations": allocations, **_OWNER, **added_properties},
        "additionalProperties": False,
        "required": ["allocations", *_OWNER, *required],
    }


_CONSUMERS: Final = {
    28: _consumer("consumer_generation", **_GENERATION),
    34: _consumer("consumer_generation", **_GENERATION, **_MAPPINGS),
    38: _consumer(
        "consumer_generation", "consumer_type", **_GENERATION, **_MAPPINGS, **_CONSUMER_TYPE
    ),
}

POST_SCHEMAS: Final = {
    minor: {
        "type": "object",
        "minProperties": 1,
        "additionalProperties": False,
        "patternProperties": {UUID_PATTERN: consumer},
        "maxProperties": limits.CONSUMERS,
    }
    for minor, consumer in {13: _consumer(), **_CONSUMERS}.items()
}
"""The schema of POST /allocations by the minor that began it."""

PUT: Final = SchemaByVersion(
    {
        0: record_of("allocations", allocations=_LIST),
        8: record_of("allocations", *_OWNER, allocations=_LIST, **_OWNER),
        12: _consumer(least=1),
        **_CONSUMERS,
    }
)
POST: Final = SchemaByVersion(POST_SCHEMAS)
