"""Query and answers of the routes that say how much more fits."""

from typing import Any, Final

from placement_server.schemas.validation import SchemaByVersion, exact_object

_COUNT: Final = {"type": "integer", "minimum": 0}


CAPACITY: Final[dict[str, Any]] = exact_object(
    at_least=_COUNT,
    at_most=_COUNT,
    exact={"type": "boolean"},
    trees={
        "type": "array",
        "items": exact_object(
            root={"type": "string", "format": "uuid"},
            name={"type": ["string", "null"]},
            at_least=_COUNT,
            at_most={"type": "integer", "minimum": 1},
        ),
    },
    limited_by={"type": "object", "additionalProperties": {"type": "integer", "minimum": 1}},
)
"""`name` is null of a tree that is supposed, or was deleted while the answer was made."""

FRAGMENTATION_QUERY: Final = SchemaByVersion(
    {
        0: {
            "type": "object",
            "properties": {"resources": {"type": "string"}, "member_of": {"type": "string"}},
            "additionalProperties": False,
        }
    }
)
"""`resources` may be repeated, a shape each; `member_of` too."""

FRAGMENTATION: Final[dict[str, Any]] = exact_object(
    resource_classes={
        "type": "object",
        "additionalProperties": exact_object(
            capacity=_COUNT, used=_COUNT, free=_COUNT, largest_free=_COUNT, stranded=_COUNT
        ),
    },
    shapes={
        "type": "array",
        "items": exact_object(
            resources={"type": "object", "additionalProperties": {"type": "integer", "minimum": 1}},
            at_least=_COUNT,
            at_most=_COUNT,
            together=_COUNT,
            ratio={"type": ["number", "null"], "minimum": 0, "maximum": 1},
        ),
    },
)
"""`ratio` is null where nothing would fit even if what is free lay together."""
