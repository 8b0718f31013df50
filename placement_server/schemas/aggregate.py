"""Bodies of PUT aggregates: a bare array before 1.19, then an object with the generation."""

from typing import Final

from placement_server import limits
from placement_server.schemas.validation import SchemaByVersion

_ARRAY: Final = {
    "type": "array",
    "items": {"type": "string", "format": "uuid"},
    "uniqueItems": True,
    "maxItems": limits.NAMES,
}

REPLACE: Final = SchemaByVersion(
    {
        1: _ARRAY,
        19: {
            "type": "object",
            "properties": {
                "aggregates": _ARRAY,
                "resource_provider_generation": {"type": "integer"},
            },
            "required": ["aggregates", "resource_provider_generation"],
            "additionalProperties": False,
        },
    }
)
