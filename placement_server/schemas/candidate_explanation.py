"""The answer of the route that explains a search for allocation candidates."""

from typing import Any, Final

_COUNT: Final = {"type": "integer", "minimum": 0}

#: ``group`` is a suffix, "" for the unsuffixed group, null for what is asked of roots.
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
