"""Body and answer of POST /what_if."""

from typing import Any, Final

from placement_server import limits
from placement_server.schemas.allocation import ALLOCATIONS
from placement_server.schemas.inventory import RECORD_FIELDS, RESOURCE_CLASS_PATTERN
from placement_server.schemas.validation import SchemaByVersion

_UUID: Final = {"type": "string", "format": "uuid"}


def _object(required: list[str], **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "required": required,
        "properties": properties,
        "additionalProperties": False,
    }


CHANGES: Final[dict[str, Any]] = {
    "set_inventory": _object(
        ["provider", "resource_class", "total"],
        provider=_UUID,
        resource_class={"type": "string", "pattern": RESOURCE_CLASS_PATTERN},
        **RECORD_FIELDS,
    ),
    "set_traits": _object(
        ["provider", "traits"],
        provider=_UUID,
        traits={
            "type": "array",
            "items": {"type": "string"},
            "uniqueItems": True,
            "maxItems": limits.NAMES,
        },
    ),
    "remove_tree": _UUID,
    "add_tree": _object(["like"], like=_UUID, copies={"type": "integer", "minimum": 1}),
    "release": _UUID,
    "claim": _object(["allocations"], allocations=ALLOCATIONS, mappings={"type": "object"}),
}
"""By the name of the kind of change, which is the only key of an entry."""

QUESTIONS: Final[dict[str, Any]] = {
    "candidates": {"type": "string"},
    "explanation": {"type": "string"},
    "capacity": {"type": "string"},
}
"""By the name of the route that answers, which is the only key of an entry."""


def _one_of(kinds: dict[str, Any], most: int) -> dict[str, Any]:
    return {
        "type": "array",
        "maxItems": most,
        "items": {
            "type": "object",
            "properties": kinds,
            "additionalProperties": False,
            "minProperties": 1,
        },
    }


WHAT_IF: Final = SchemaByVersion(
    {
        10: _object(
            ["changes", "questions"],
            changes=_one_of(CHANGES, limits.CHANGES),
            questions=_one_of(QUESTIONS, limits.QUESTIONS),
        )
    }
)

ANSWERS: Final = _object(["answers"], answers={"type": "array", "items": {"type": "object"}})
"""Each answer has the form of the route that it is of, or that of an error."""
