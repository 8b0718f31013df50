"""Handler of GET /history: what was changed, of which host and consumer, by whom. An extension."""

from __future__ import annotations

from typing import Any, Final

from placement_server.api.request import Request
from placement_server.api.response import Response, cache_headers, json_response
from placement_server.schemas import history as schemas
from placement_server.store.changes import past_changes
from placement_server.store.changes.past_changes import PastQuery, PastWrite

_DEFAULT_LIMIT: Final = "100"


def list_(request: Request) -> Response:
    """List past changes, the newest first, or with `after` the oldest behind that id first.

    `root` is a host, `consumer` who holds something of it, and `name` a resource class, a trait or
    an aggregate.
    """
    params = request.query(schemas.QUERY)
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
