"""The answer of the route that explains a search for allocation candidates."""

from typing import Any, Final

from placement_server.schemas.validation import (
    COUNT,
    POSITIVE,
    TEXT,
    TEXT_OR_NULL,
    UUID,
    array_of,
    exact_object,
    optional,
)

_ANSWER: Final[dict[str, Any]] = {
    "trees": COUNT,
    "steps": array_of(
        optional(
            exact_object(
                group=TEXT_OR_NULL, filter=TEXT, providers_left=COUNT, trees_rejected=COUNT
            ),
            "providers_left",
            "trees_rejected",
        )
    ),
    "trees_left": COUNT,
    "trees_failed": array_of(exact_object(reason=TEXT, trees=COUNT, example=UUID)),
    "sentences": array_of(TEXT),
}

EXPLANATION: Final = exact_object(**_ANSWER)
"""`group` is a suffix, "" for the unsuffixed group, null for what is asked of roots."""

_DROPPED: Final = (
    "drop_trait",
    "allow_trait",
    "drop_aggregate",
    "allow_aggregate",
    "drop_in_tree",
    "drop_same_subtree",
    "drop_group_policy",
    "drop_isolate",
    "drop_root_required",
)
_CHANGE: Final = {
    "oneOf": [
        exact_object(group=TEXT, resource_class=TEXT, **{"from": POSITIVE}, to=POSITIVE),
        *(exact_object(group=TEXT_OR_NULL, **{key: TEXT}) for key in _DROPPED),
    ]
}
_SHORTAGE: Final = exact_object(
    group=TEXT,
    provider=UUID,
    name=TEXT,
    resource_class=TEXT,
    asked=POSITIVE,
    free=COUNT,
    capacity={"type": "integer"},
    held_by=COUNT,
    min_unit=POSITIVE,
    max_unit=POSITIVE,
    step_size=POSITIVE,
)

EXPLANATION_WITH_CLOSEST: Final = exact_object(
    **_ANSWER,
    closest=array_of(
        exact_object(
            changes=array_of(_CHANGE, minItems=1, maxItems=2), trees=POSITIVE, example=UUID
        )
    ),
    short=array_of(optional(_SHORTAGE, "min_unit", "max_unit", "step_size")),
    complete={"type": "boolean"},
)
"""From placement-ext 1.1 on. In a change `group` is a suffix, null for the query as a whole and
for what is asked of roots. A unit of an inventory is shown where it forbids the amount."""
