"""Query and answers of the routes that say how much more fits."""

from typing import Final

from placement_server.schemas.validation import (
    COUNT,
    POSITIVE,
    TEXT,
    TEXT_OR_NULL,
    UUID,
    array_of,
    exact_object,
    map_of,
    query_of,
)

CAPACITY: Final = exact_object(
    at_least=COUNT,
    at_most=COUNT,
    exact={"type": "boolean"},
    trees=array_of(exact_object(root=UUID, name=TEXT_OR_NULL, at_least=COUNT, at_most=POSITIVE)),
    limited_by=map_of(POSITIVE),
)
"""`name` is null of a tree that is supposed, or was deleted while the answer was made."""

FRAGMENTATION_QUERY: Final = query_of(resources=TEXT, member_of=TEXT)
"""`resources` may be repeated, a shape each; `member_of` too."""

FRAGMENTATION: Final = exact_object(
    resource_classes=map_of(
        exact_object(capacity=COUNT, used=COUNT, free=COUNT, largest_free=COUNT, stranded=COUNT)
    ),
    shapes=array_of(
        exact_object(
            resources=map_of(POSITIVE),
            at_least=COUNT,
            at_most=COUNT,
            together=COUNT,
            ratio={"type": ["number", "null"], "minimum": 0, "maximum": 1},
        )
    ),
)
"""`ratio` is null where nothing would fit even if what is free lay together."""
