"""Query string of GET /history, and its answer."""

from typing import Final

from placement_server.schemas.validation import (
    COUNT,
    POSITIVE,
    TEXT,
    TEXT_OR_NULL,
    TIME,
    UUID,
    UUID_OR_NULL,
    array_of,
    exact_object,
    query_of,
)
from placement_server.store import past_changes

_ID: Final = {"type": "string", "pattern": "^[0-9]{1,18}$"}
_VALUE: Final = {"type": ["integer", "string", "null"]}

QUERY: Final = query_of(
    root=UUID,
    consumer=UUID,
    name={"type": "string", "minLength": 1, "maxLength": 255},
    before=_ID,
    after=_ID,
    limit={"type": "string", "pattern": "^([1-9][0-9]{0,2}|1000)$"},
)

_CHANGE: Final = exact_object(
    provider_uuid=UUID,
    provider_name=TEXT_OR_NULL,
    what={"enum": past_changes.KINDS},
    name=TEXT,
    before=_VALUE,
    after=_VALUE,
)

HISTORY: Final = exact_object(
    history=array_of(
        exact_object(
            id=POSITIVE,
            at=TIME,
            root_provider_uuid=UUID_OR_NULL,
            root_provider_name=TEXT_OR_NULL,
            consumer_uuid=UUID_OR_NULL,
            request_id=TEXT,
            user_id=TEXT,
            changes=array_of(_CHANGE, minItems=1),
        )
    ),
    days=COUNT,
)
