"""Body and answer of POST /make_room."""

from typing import Any, Final

from placement_server import limits
from placement_server.schemas.validation import (
    COUNT,
    TEXT,
    TEXT_OR_NULL,
    UUID,
    SchemaByVersion,
    array_of,
    exact_object,
    map_of,
    optional,
)

_NAMES: Final = array_of(TEXT, maxItems=limits.NAMES)
_UUIDS: Final = array_of(UUID, maxItems=limits.NAMES)

_LEFT_ALONE: Final = {
    "consumers": _UUIDS,
    "projects": _NAMES,
    "types": _NAMES,
    "trees": _UUIDS,
    "traits": _NAMES,
    "aggregates": _UUIDS,
}
_QUESTION: Final[dict[str, Any]] = {
    "request": TEXT,
    "places": {"type": "integer", "minimum": 1, "maximum": 100},
    "empty": array_of(UUID, maxItems=100),
    "avoid": _UUIDS,
    "max_moves": {"type": "integer", "minimum": 0, "maximum": 8},
    "swap": {"type": "boolean"},
    "leave_alone": optional(exact_object(**_LEFT_ALONE)),
    "requests": {
        "type": "object",
        "propertyNames": UUID,
        "patternProperties": {".*": TEXT},
        "maxProperties": limits.NAMES,
    },
    "plans": {"type": "integer", "minimum": 1, "maximum": 10},
    "time_limit": {"type": "number", "exclusiveMinimum": 0, "maximum": 86_400},
}
MAKE_ROOM: Final = SchemaByVersion({34: optional(exact_object(**_QUESTION))})

_TREE: Final = exact_object(root=UUID, name=TEXT_OR_NULL)
_PLACE: Final[dict[str, Any]] = {
    "to": _TREE,
    "allocations": {"type": "object"},
    "mappings": map_of(_UUIDS),
}

ROOM: Final = exact_object(
    plans=array_of(
        exact_object(
            moves=array_of(exact_object(consumer=TEXT, **{"from": _TREE}, **_PLACE)),
            places=array_of(exact_object(**_PLACE)),
            memory_mb=COUNT,
            whole={"type": "boolean"},
            stuck=_NAMES,
        )
    ),
    proved={"type": "boolean"},
    stays=_NAMES,
)
"""`name` is null of a tree that was deleted while the answer was made."""
