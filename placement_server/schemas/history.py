"""Query string of GET /history, and its answer."""

from typing import Any, Final

from placement_server.schemas.validation import SchemaByVersion, exact_object
from placement_server.store.transactions import past_changes

_ID: Final = {"type": "string", "pattern": "^[0-9]{1,18}$"}
_UUID: Final = {"type": "string", "format": "uuid"}
_VALUE: Final = {"type": ["integer", "string", "null"]}
_KINDS: Final = [
    past_changes.USED,
    past_changes.TOTAL,
    past_changes.RESERVED,
    past_changes.TRAIT,
    past_changes.AGGREGATE,
    past_changes.PROVIDER,
    past_changes.NAME,
    past_changes.PARENT,
]

QUERY: Final = SchemaByVersion(
    {
        0: {
            "type": "object",
            "properties": {
                "root": _UUID,
                "consumer": _UUID,
                "name": {"type": "string", "minLength": 1, "maxLength": 255},
                "before": _ID,
                "after": _ID,
                "limit": {"type": "string", "pattern": "^([1-9][0-9]{0,2}|1000)$"},
            },
            "additionalProperties": False,
        }
    },
    strict_uuids=True,
)

_CHANGE: Final = exact_object(
    provider_uuid=_UUID,
    provider_name={"type": ["string", "null"]},
    what={"enum": _KINDS},
    name={"type": "string"},
    before=_VALUE,
    after=_VALUE,
)
_PAST: Final = exact_object(
    id={"type": "integer", "minimum": 1},
    at={"type": "string", "format": "date-time"},
    root_provider_uuid={"type": ["string", "null"], "format": "uuid"},
    root_provider_name={"type": ["string", "null"]},
    consumer_uuid={"type": ["string", "null"], "format": "uuid"},
    request_id={"type": "string"},
    user_id={"type": "string"},
    changes={"type": "array", "minItems": 1, "items": _CHANGE},
)

HISTORY: Final[dict[str, Any]] = exact_object(
    history={"type": "array", "items": _PAST},
    days={"type": "integer", "minimum": 0},
)
