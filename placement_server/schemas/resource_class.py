"""The name of a custom resource class, in a body or made from the path."""

from typing import Final

from placement_server.schemas.validation import SchemaByVersion

NAMED: Final = SchemaByVersion(
    {
        2: {
            "type": "object",
            "properties": {
                "name": {"type": "string", "pattern": "^CUSTOM_[A-Z0-9_]+$", "maxLength": 255}
            },
            "required": ["name"],
            "additionalProperties": False,
        }
    }
)
