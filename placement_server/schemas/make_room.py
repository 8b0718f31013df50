"""Body and answer of POST /make_room."""

from typing import Any, Final

from placement_server import limits
from placement_server.schemas.validation import SchemaByVersion

_UUID: Final = {"type": "string", "format": "uuid"}
_COUNT: Final = {"type": "integer", "minimum": 0}


def _object(*required: str, **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(required),
        "properties": properties,
    }


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items, "maxItems": limits.NAMES}


_NAMES: Final = _list({"type": "string"})

MAKE_ROOM: Final = SchemaByVersion(
    {
        34: _object(
            request={"type": "string"},
            places={"type": "integer", "minimum": 1, "maximum": 100},
            empty={**_list(_UUID), "maxItems": 100},
            avoid=_list(_UUID),
            max_moves={"type": "integer", "minimum": 0, "maximum": 8},
            swap={"type": "boolean"},
            leave_alone=_object(
                consumers=_list(_UUID),
                projects=_NAMES,
                types=_NAMES,
                trees=_list(_UUID),
                traits=_NAMES,
                aggregates=_list(_UUID),
            ),
            requests={
                "type": "object",
                "additionalProperties": {"type": "string"},
                "maxProperties": limits.NAMES,
            },
            plans={"type": "integer", "minimum": 1, "maximum": 10},
            time_limit={"type": "number", "exclusiveMinimum": 0},
        )
    }
)

_TREE: Final = _object("root", "name", root=_UUID, name={"type": ["string", "null"]})
_PLACE: Final[dict[str, Any]] = {
    "allocations": {"type": "object"},
    "mappings": {"type": "object", "additionalProperties": _list(_UUID)},
}

ROOM: Final[dict[str, Any]] = _object(
    "plans",
    "proved",
    "stays",
    plans={
        "type": "array",
        "items": _object(
            "moves",
            "places",
            "memory_mb",
            "whole",
            "stuck",
            moves={
                "type": "array",
                "items": _object(
                    "consumer",
                    "from",
                    "to",
                    *_PLACE,
                    **{"consumer": {"type": "string"}, "from": _TREE, "to": _TREE, **_PLACE},
                ),
            },
            places={"type": "array", "items": _object("to", *_PLACE, to=_TREE, **_PLACE)},
            memory_mb=_COUNT,
            whole={"type": "boolean"},
            stuck=_list({"type": "string"}),
        ),
    },
    proved={"type": "boolean"},
    stays=_list({"type": "string"}),
)
"""`name` is null of a tree that was deleted while the answer was made."""
