"""Body and answer of POST /what_if."""

from typing import Any, Final

from placement_server import limits
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
