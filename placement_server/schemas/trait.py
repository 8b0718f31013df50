"""Bodies, names and query strings of the trait routes."""

from typing import Final

from placement_server import limits
from placement_server.schemas.validation import SchemaByVersion

NAME: Final = SchemaByVersion(
    {6: {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^CUSTOM_[A-Z0-9_]+$"}}
)

LIST: Final = SchemaByVersion(
    {
        6: {
            "type": "object",
            "properties": {"name": {"type": "string"}, "associated": {"type": "string"}},
            "additionalProperties": False,
        }
    },
    strict_uuids=True,
)

REPLACE_OF_PROVIDER: Final = SchemaByVersion(
    {
        6: {
            "type": "object",
            "properties": {
                "traits": {
                    "type": "array",
                    "items": {"type": "string", "minLength": 1, "maxLength": 255},
                    "maxItems": limits.NAMES,
                },
                "resource_provider_generation": {"type": "integer"},
            },
            "required": ["traits", "resource_provider_generation"],
            "additionalProperties": False,
        }
    }
)
