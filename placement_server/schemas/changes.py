"""Query string of GET /changes, and its answer."""

from typing import Any, Final

from placement_server.schemas.validation import SchemaByVersion

_ID: Final = {"type": "integer", "minimum": 0}
_KINDS: Final = ["structure", "usage", "names"]

QUERY: Final = SchemaByVersion(
    {
        0: {
            "type": "object",
            "properties": {
                "after": {"type": "string", "pattern": "^[0-9]{1,18}$"},
                "limit": {"type": "string", "pattern": "^([1-9][0-9]{0,3}|10000)$"},
                "wait": {"type": "string", "pattern": "^([1-5]?[0-9]|60)$"},
                "root": {"type": "string", "format": "uuid"},
                "kind": {"type": "string", "enum": _KINDS},
            },
            "additionalProperties": False,
        }
    },
    strict_uuids=True,
)

CHANGES: Final[dict[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["changes", "last", "oldest"],
    "properties": {
        "changes": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["id", "root_provider_uuid", "kinds", "at"],
                "properties": {
                    "id": _ID,
                    "root_provider_uuid": {"type": ["string", "null"], "format": "uuid"},
                    "kinds": {"type": "array", "minItems": 1, "items": {"enum": _KINDS}},
                    "at": {"type": "string", "format": "date-time"},
                },
            },
        },
        "last": _ID,
        "oldest": _ID,
    },
}
