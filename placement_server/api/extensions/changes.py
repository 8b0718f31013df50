"""Handler of GET /changes: what was written, in order, as it happens. An extension."""

from __future__ import annotations

from typing import Any, Final

from placement_server import errors
from placement_server.api.request import Request, check_query
from placement_server.api.response import Response, cache_headers, json_response
from placement_server.feed.service import (
    ALL_KINDS,
    ChangesAnswer,
    ChangeSelection,
    ChangesPruned,
    TooManyWatchers,
)
from placement_server.limits import FILTERS, too_many
from placement_server.schemas.validation import (
    COUNT,
    TIME,
    UUID,
    UUID_OR_NULL,
    array_of,
    exact_object,
    query_of,
)
from placement_server.store.changes.changes import FeedRecord
from placement_server.store.transaction import NAMES, STRUCTURE, USAGE

_KINDS: Final = {"structure": STRUCTURE, "usage": USAGE, "names": NAMES}
_NAMES: Final = {kind: name for name, kind in _KINDS.items()}

QUERY: Final = query_of(
    after={"type": "string", "pattern": "^[0-9]{1,18}$"},
    limit={"type": "string", "pattern": "^([1-9][0-9]{0,3}|10000)$"},
    wait={"type": "string", "pattern": "^([1-5]?[0-9]|60)$"},
    root=UUID,
    kind={"type": "string", "enum": list(_KINDS)},
)

CHANGES: Final = exact_object(
    changes=array_of(
        exact_object(
            id=COUNT,
            root_provider_uuid=UUID_OR_NULL,
            kinds=array_of({"enum": list(_KINDS)}, minItems=1),
            at=TIME,
        )
    ),
    last=COUNT,
    oldest=COUNT,
)

_DEFAULT_LIMIT: Final = "1000"

_RETRY_AFTER: Final = 5
"""Seconds until a place for one more request that waits may be free."""


def list_(request: Request) -> Response:
    """List the changes with ids behind `after`: so many, in order, each once, none missed.

    Without `after` there are none, and `last` is where the feed is now. `wait` is how many
    seconds the request waits while there is nothing to list. Of `root` and `kind` several may
    be given, up to 1,000; changes of any of them are listed.

    400 for what is malformed; 410 when changes behind `after` have been deleted, or the database
    has none up to there; 503 with Retry-After when as many requests wait as may.
    """
    params = request.query(QUERY)
    after = params.get("after")
    seconds = int(params.get("wait", 0))
    try:
        answer = request.services.changes.await_changes(
            None if after is None else int(after),
            ChangeSelection(
                frozenset(_KINDS[kind] for kind in _values(request, "kind")) or ALL_KINDS,
                frozenset(root.lower() for root in _values(request, "root")) or None,
                int(params.get("limit", _DEFAULT_LIMIT)),
            ),
            seconds,
            begin=request.give_turn_back,
            wait=request.wait,
        )
    except ChangesPruned as error:
        raise errors.Gone(
            f"Not all changes after {after} are there: {error}. Read what you follow again, and "
            "go on from the end of the feed.",
            code=errors.CHANGES_PRUNED,
        ) from error
    except TooManyWatchers as error:
        raise errors.ServiceUnavailable(
            "No more requests can wait for changes in this worker "
            "([placement_server]max_watchers); ask again later, or without wait.",
            retry_after=_RETRY_AFTER,
        ) from error
    return json_response(_body_of(answer), *cache_headers(request.version))


def _values(request: Request, name: str) -> list[str]:
    values = request.all_of(name)
    if len(values) > FILTERS:
        raise errors.BadRequest(
            f"Invalid query string parameters: {too_many(name, len(values), 'values', FILTERS)}"
        )
    # the last one has been checked with the other parameters
    for value in values[:-1]:
        check_query({name: value}, QUERY, request.version)
    return values


def _body_of(answer: ChangesAnswer) -> dict[str, Any]:
    return {
        "changes": [_change(change) for change in answer.changes],
        "last": answer.last,
        "oldest": answer.oldest,
    }


def _change(change: FeedRecord) -> dict[str, Any]:
    return {
        "id": change.id,
        "root_provider_uuid": change.root_uuid,
        "kinds": [_NAMES[change.kind]],
        "at": change.at.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
