"""Body and answer of POST /make_room."""

from typing import Any, Final

from placement_server import limits
from placement_server.schemas.validation import SchemaByVersion, exact_object

_UUID: Final = {"type": "string", "format": "uuid"}


def _optional(**properties: Any) -> dict[str, Any]:
    return {**exact_object(**properties), "required": []}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items, "maxItems": limits.NAMES}


_NAMES: Final = _list({"type": "string"})

MAKE_ROOM: Final = SchemaByVersion(
    {
        34: _optional(
            request={"type": "string"},
            places={"type": "integer", "minimum": 1, "maximum": 100},
            empty={**_list(_UUID), "maxItems": 100},
            avoid=_list(_UUID),
            max_moves={"type": "integer", "minimum": 0, "maximum": 8},
            swap={"type": "boolean"},
            leave_alone=_optional(
                consumers=_list(_UUID),
                projects=_NAMES,
                types=_NAMES,
                trees=_list(_UUID),
                traits=_NAMES,
                aggregates=_list(_UUID),
            ),
            requests={
                "type": "object",
                "propertyNames": _UUID,
                "patternProperties": {".*": {"type": "string"}},
                "maxProperties": limits.NAMES,
            },
            plans={"type": "integer", "minimum": 1, "maximum": 10},
            time_limit={"type": "number", "exclusiveMinimum": 0, "maximum": 86_400},
        )
    }
)

_TREE: Final = exact_object(root=_UUID, name={"type": ["string", "null"]})
_PLACE: Final[dict[str, Any]] = {
    "to": _TREE,
    "allocations": {"type": "object"},
    "mappings": {"type": "object", "additionalProperties": _list(_UUID)},
}
_MOVE: Final = {"consumer": {"type": "string"}, "from": _TREE, **_PLACE}

ROOM: Final[dict[str, Any]] = exact_object(
    plans={
        "type": "array",
        "items": exact_object(
            moves={"type": "array", "items": exact_object(**_MOVE)},
            places={"type": "array", "items": exact_object(**_PLACE)},
            memory_mb={"type": "integer", "minimum": 0},
            whole={"type": "boolean"},
            stuck=_NAMES,
        ),
    },
    proved={"type": "boolean"},
    stays=_NAMES,
)
"""`name` is null of a tree that was deleted while the answer was made."""
