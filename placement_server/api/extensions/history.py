"""Handler of GET /history: what was changed, of which host and consumer, by whom. An extension."""

from __future__ import annotations

from typing import Any, Final

from placement_server.api.request import Request
from placement_server.api.response import Response, cache_headers, json_response
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
from placement_server.store.changes import past_changes
from placement_server.store.changes.past_changes import PastQuery, PastWrite
from placement_server.store.past_changes import KINDS

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
    what={"enum": KINDS},
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

_DEFAULT_LIMIT: Final = "100"


def list_(request: Request) -> Response:
    """List past changes, the newest first, or with `after` the oldest behind that id first.

    `root` is a host, `consumer` who holds something of it, and `name` a resource class, a trait or
    an aggregate.
    """
    params = request.query(QUERY)
    query = PastQuery(
        root=_lower(params.get("root")),
        consumer=_lower(params.get("consumer")),
        name=params.get("name"),
        before=_number(params.get("before")),
        after=_number(params.get("after")),
        most=int(params.get("limit", _DEFAULT_LIMIT)),
    )
    body = {
        "history": [_past(past) for past in request.store.read(past_changes.read, query)],
        "days": request.store.options.history_days,
    }
    return json_response(body, *cache_headers(request.version))


def _lower(uuid: str | None) -> str | None:
    return None if uuid is None else uuid.lower()


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def _past(past: PastWrite) -> dict[str, Any]:
    return {
        "id": past.id,
        "at": past.at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "root_provider_uuid": past.root_uuid,
        "root_provider_name": past.root_name,
        "consumer_uuid": past.consumer,
        "request_id": past.request_id,
        "user_id": past.user_id,
        "changes": [entry._asdict() for entry in past.entries],
    }
