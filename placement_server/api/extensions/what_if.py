"""Handler of POST /what_if: answers about the fleet as it would be after some changes.

An extension. Nothing is written: the changes are made on a copy of the index, and each question is
answered as the route of its name answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from placement_server import errors, limits
from placement_server.api.extensions import candidate_explanation, capacity
from placement_server.api.request import REQUEST_ID_KEY, Request
from placement_server.api.resources import allocation_candidates
from placement_server.api.resources.inventories import inventory_record
from placement_server.api.response import Chunks, Response, cache_headers, encode, encoded_response
from placement_server.candidates.errors import SearchGaveUp
from placement_server.candidates.evaluator import SupposedFleet
from placement_server.candidates.what_if import (
    AddTree,
    ImpossibleSupposition,
    Release,
    RemoveTree,
    SupposedAllocation,
    SupposedInventory,
    SupposedTraits,
    Supposition,
    SuppositionError,
    UnknownInSupposition,
)
from placement_server.policies import operations
from placement_server.schemas.allocation import ALLOCATIONS
from placement_server.schemas.inventory import RECORD_FIELDS, RESOURCE_CLASS_PATTERN
from placement_server.schemas.validation import (
    POSITIVE,
    TEXT,
    UUID,
    SchemaByVersion,
    array_of,
    exact_object,
    optional,
    pointer,
)

CHANGES: Final[dict[str, Any]] = {
    "set_inventory": optional(
        exact_object(
            provider=UUID,
            resource_class={"type": "string", "pattern": RESOURCE_CLASS_PATTERN},
            **RECORD_FIELDS,
        ),
        *(name for name in RECORD_FIELDS if name != "total"),
    ),
    "set_traits": exact_object(
        provider=UUID, traits={"uniqueItems": True, **array_of(TEXT, maxItems=limits.NAMES)}
    ),
    "remove_tree": UUID,
    "add_tree": optional(exact_object(like=UUID, copies=POSITIVE), "copies"),
    "release": UUID,
    "claim": optional(
        exact_object(allocations=ALLOCATIONS, mappings={"type": "object"}), "mappings"
    ),
}
"""By the name of the kind of change, which is the only key of an entry."""

QUESTIONS: Final[dict[str, Any]] = dict.fromkeys(("candidates", "explanation", "capacity"), TEXT)
"""By the name of the route that answers, which is the only key of an entry."""


def _one_of(kinds: dict[str, Any], most: int) -> dict[str, Any]:
    entry = optional(exact_object(**kinds))
    return array_of({**entry, "minProperties": 1}, maxItems=most)


WHAT_IF: Final = SchemaByVersion(
    {
        10: exact_object(
            changes=_one_of(CHANGES, limits.CHANGES),
            questions=_one_of(QUESTIONS, limits.QUESTIONS),
        )
    }
)

ANSWERS: Final = exact_object(answers=array_of({"type": "object"}))
"""Each answer has the form of the route that it is of, or that of an error."""

Ask = Callable[[Request, SupposedFleet, str], list[bytes]]


def answer(request: Request) -> Response:
    """Answer questions about the fleet with changes supposed to be made, in order."""
    body = request.pointed_json(WHAT_IF)
    questions = [
        _only_entry(entry, "questions", number) for number, entry in enumerate(body["questions"])
    ]
    changes = [
        _change(*_only_entry(entry, "changes", number))
        for number, entry in enumerate(body["changes"])
    ]
    fleet = _suppose(request, changes, body["changes"])
    try:
        pieces = [b'{"answers":[']
        for number, (kind, text) in enumerate(questions):
            if number:
                pieces.append(b",")
            pieces += _answer(request, fleet, kind, text)
        pieces.append(b"]}")
    except BaseException:
        fleet.account.close()
        raise
    finally:
        fleet.leave()
    return encoded_response(Chunks(pieces, fleet.account.close), *cache_headers(request.version))


def _only_entry(entry: Mapping[str, Any], field: str, number: int) -> tuple[str, Any]:
    if len(entry) > 1:
        at = pointer(field, number)
        raise errors.BadRequest(
            f"JSON does not validate at {at}: {', '.join(map(repr, entry))} are {len(entry)} "
            "keys, expected one",
            pointer=at,
        )
    return next(iter(entry.items()))


def _suppose(request: Request, changes: list[Supposition], bodies: list[Any]) -> SupposedFleet:
    try:
        return request.services.candidates.suppose(changes, request.version, request.give_turn_back)
    except SuppositionError as error:
        kind = next(iter(bodies[error.position]))
        at = pointer("changes", error.position, kind, *error.path)
        message = f"The change at {at} cannot be supposed: {error.message}"
        if isinstance(error, UnknownInSupposition):
            raise errors.NotFound(message, pointer=at) from error
        if isinstance(error, ImpossibleSupposition):
            raise errors.Conflict(message, pointer=at) from error
        raise errors.BadRequest(message, pointer=at) from error
    except SearchGaveUp as error:
        raise allocation_candidates.gave_up(request, error) from error


def _change(kind: str, body: Any) -> Supposition:
    return _CHANGES[kind](body)


def _set_inventory(body: Mapping[str, Any]) -> Supposition:
    record = inventory_record(body["resource_class"], body)
    return SupposedInventory(body["provider"], body["resource_class"], record)


def _claim(body: Mapping[str, Any]) -> Supposition:
    return SupposedAllocation(
        {
            provider: {name: int(amount) for name, amount in entry["resources"].items()}
            for provider, entry in body["allocations"].items()
        }
    )


_CHANGES: Final[Mapping[str, Callable[[Any], Supposition]]] = {
    "set_inventory": _set_inventory,
    "set_traits": lambda body: SupposedTraits(body["provider"], tuple(body["traits"])),
    "remove_tree": RemoveTree,
    "add_tree": lambda body: AddTree(body["like"], int(body.get("copies", 1))),
    "release": Release,
    "claim": _claim,
}


def _answer(request: Request, fleet: SupposedFleet, kind: str, text: str) -> list[bytes]:
    """Return the body of the route of that name, be it that of an error."""
    try:
        # A query string reaches an application as its bytes, one character each.
        pieces = _QUESTIONS[kind](request, fleet, text.encode().decode("latin-1"))
        fleet.account.take(sum(map(len, pieces)))
    except SearchGaveUp as error:
        return [_error_body(request, allocation_candidates.gave_up(request, error))]
    except errors.ApiError as error:
        return [_error_body(request, error)]
    return pieces


def _error_body(request: Request, error: errors.ApiError) -> bytes:
    environ = {**request.environ, "HTTP_ACCEPT": "application/json"}
    *_, body = errors.render(error, environ, request.version, request.environ[REQUEST_ID_KEY])
    return body


def _candidates(request: Request, fleet: SupposedFleet, text: str) -> list[bytes]:
    request.authorise(operations.CANDIDATES_LIST)
    return allocation_candidates.result_of(request, text, fleet.candidates, "answered")


def _explanation(request: Request, fleet: SupposedFleet, text: str) -> list[bytes]:
    request.authorise(operations.CANDIDATES_LIST)
    explanation = allocation_candidates.result_of(request, text, fleet.explain, "explained")
    return [encode(candidate_explanation.body_with_closest(explanation))]


def _capacity(request: Request, fleet: SupposedFleet, text: str) -> list[bytes]:
    request.require_version(29)
    request.authorise(operations.CAPACITY_SHOW)
    count = allocation_candidates.result_of(request, text, fleet.capacity, "counted")
    return [encode(capacity.body_of(request, count))]


_QUESTIONS: Final[Mapping[str, Ask]] = {
    "candidates": _candidates,
    "explanation": _explanation,
    "capacity": _capacity,
}
