"""Query string of GET /changes, and its answer."""

from typing import Final

from placement_server.schemas.validation import (
    COUNT,
    TIME,
    UUID,
    UUID_OR_NULL,
    array_of,
    exact_object,
    query_of,
)

_KINDS: Final = ["structure", "usage", "names"]

QUERY: Final = query_of(
    after={"type": "string", "pattern": "^[0-9]{1,18}$"},
    limit={"type": "string", "pattern": "^([1-9][0-9]{0,3}|10000)$"},
    wait={"type": "string", "pattern": "^([1-5]?[0-9]|60)$"},
    root=UUID,
    kind={"type": "string", "enum": _KINDS},
)

CHANGES: Final = exact_object(
    changes=array_of(
        exact_object(
            id=COUNT,
            root_provider_uuid=UUID_OR_NULL,
            kinds=array_of({"enum": _KINDS}, minItems=1),
            at=TIME,
        )
    ),
    last=COUNT,
    oldest=COUNT,
)
