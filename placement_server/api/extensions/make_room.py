"""Handler of POST /make_room: which few consumers to move so that a request fits.

An extension. Nothing is written: the answer is a plan for whoever can move guests.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from placement_server import errors, limits
from placement_server.api.request import Request
from placement_server.api.resources import allocation_candidates
from placement_server.api.response import Response, cache_headers, json_response
from placement_server.candidates.make_room.plan import Bounds
from placement_server.candidates.make_room.question import DISABLED, Question, UnknownTree
from placement_server.candidates.query.query import CandidateQuery
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

UNFINISHED_MOVE: Final = "MIGRATION"
"""The type of consumers that hold the source of a move until it ends."""

_BOUNDS: Final[Mapping[str, tuple[str, Callable[[Any], Any]]]] = {
    "places": ("count", int),
    "max_moves": ("most_moves", int),
    "swap": ("swap", bool),
    "plans": ("plans", int),
    "time_limit": ("seconds", float),
}
"""By the field of the body: the field of the bounds, and its type, as JSON has 1.0 for 1."""


def answer(request: Request) -> Response:
    """Return plans of a few moves after which a request fits, trees are empty, or both."""
    body = request.pointed_json(MAKE_ROOM)
    if "request" not in body and not body.get("empty"):
        raise errors.BadRequest(
            "The body asks for nothing: expected request, empty, or both.", pointer=""
        )
    with allocation_candidates.counted_search(request, "planned"):
        try:
            question = _question(request, body)
            request.give_turn_back()
            body = request.services.candidates.room.answer(question)
        except UnknownTree as error:
            raise errors.NotFound(error.message, pointer=error.pointer) from error
    return json_response(body, *cache_headers(request.version))


def _question(request: Request, body: Mapping[str, Any]) -> Question:
    left_alone = body.get("leave_alone", {})
    query = body.get("request")
    return Question(
        query=None if query is None else _query(request, query),
        bounds=Bounds(
            **{field: kind(body[name]) for name, (field, kind) in _BOUNDS.items() if name in body}
        ),
        emptied=tuple(dict.fromkeys(map(_canonical, body.get("empty", ())))),
        avoided=tuple(map(_canonical, body.get("avoid", ()))),
        trees=tuple(map(_canonical, left_alone.get("trees", ()))),
        traits=frozenset(left_alone.get("traits", (DISABLED,))),
        aggregates=frozenset(map(_canonical, left_alone.get("aggregates", ()))),
        consumers=frozenset(map(_canonical, left_alone.get("consumers", ()))),
        projects=frozenset(left_alone.get("projects", ())),
        types=frozenset(left_alone.get("types", (UNFINISHED_MOVE,))),
        requests={
            _canonical(consumer): _query(request, text)
            for consumer, text in body.get("requests", {}).items()
        },
    )


def _canonical(text: str) -> str:
    return str(uuid.UUID(text))


def _query(request: Request, text: str) -> CandidateQuery:
    # A query string reaches an application as its bytes, one character each.
    return allocation_candidates.query_of(request, text.encode().decode("latin-1"))
