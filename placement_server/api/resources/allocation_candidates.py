"""Handler of GET /allocation_candidates: every way to satisfy a request for resources."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import Final, TypeVar

from placement_server import errors
from placement_server.api.request import Request, check_query, read_query
from placement_server.api.response import Chunks, Response, cache_headers, encoded_response
from placement_server.candidates.errors import (
    OutOfTime,
    QueryError,
    SearchGaveUp,
    TooManyCandidates,
    TooManyHeavySearches,
    TooMuchMemory,
    WorkerOutOfMemory,
)
from placement_server.candidates.query.parser import SCHEMAS, parse, schema_for
from placement_server.candidates.query.query import CandidateQuery
from placement_server.metrics import metrics
from placement_server.negotiation.microversion import Microversion
from placement_server.schemas.validation import SchemaByVersion

LIST: Final = SchemaByVersion({version[1]: schema for version, schema in SCHEMAS.items()})
EXTENDED: Final = SchemaByVersion(
    {version[1]: schema_for(version, extensions=True) for version in SCHEMAS}
)

_CAUSES: Final[dict[type[SearchGaveUp], str]] = {
    OutOfTime: "deadline",
    TooManyCandidates: "candidates",
    TooMuchMemory: "memory",
    WorkerOutOfMemory: "worker_memory",
    TooManyHeavySearches: "heavy",
}

# The version of the extensions from which on a search that gives up has a code of its own.
_WITH_CODES: Final = Microversion(1, 1)

_Answer = TypeVar("_Answer")


def list_(request: Request) -> Response:
    """List the candidates."""
    answer = search_for(request, request.services.candidates.answer, "answered")
    body = Chunks(answer.chunks, answer.account.close)
    return encoded_response(body, *cache_headers(request.version))


def search_for(
    request: Request,
    search: Callable[[CandidateQuery, Microversion, Callable[[], None]], _Answer],
    result: str,
) -> _Answer:
    """Return the result of a search for the query of a request.

    :param result: the label under which a search that succeeds is counted.
    """

    def on_turn(candidate_query: CandidateQuery, version: Microversion) -> _Answer:
        return search(candidate_query, version, request.give_turn_back)

    return result_of(request, request.query_string, on_turn, result)


def result_of(
    request: Request,
    query_string: str,
    search: Callable[[CandidateQuery, Microversion], _Answer],
    result: str,
) -> _Answer:
    """Return the result of a search for a query in the form of a query string.

    :param result: the label under which a search that succeeds is counted.
    """
    with counted_search(request, result):
        return search(query_of(request, query_string), request.version)


def query_of(request: Request, query_string: str) -> CandidateQuery:
    """Return a query in the form of a query string, as the version of the request reads it.

    :raises QueryError: it is malformed or contradicts itself.
    """
    read = _cached_read if len(query_string) <= _REMEMBERED_LENGTH else _read
    return read(query_string, request.version, bool(request.extensions))


@contextmanager
def counted_search(request: Request, result: str) -> Iterator[None]:
    """Count a search, and make its errors those of the API.

    :param result: the label under which a search that succeeds is counted.
    """
    began = time.perf_counter()
    outcome = "failed"
    try:
        yield
        outcome = result
    except QueryError as error:
        outcome = "refused"
        raise errors.BadRequest(error.message, code=error.code or errors.UNDEFINED) from error
    except SearchGaveUp as error:
        outcome = "gave_up"
        raise gave_up(request, error) from error
    finally:
        _seconds(outcome).observe(time.perf_counter() - began)


def gave_up(request: Request, error: SearchGaveUp) -> errors.ServiceUnavailable:
    """Return the 503 of a search that gave up, and count its cause."""
    metrics.GIVEN_UP.labels(_CAUSES[type(error)]).inc()
    has_code = request.extensions is not None and request.extensions >= _WITH_CODES
    return errors.ServiceUnavailable(
        str(error),
        retry_after=error.retry_after,
        code=errors.SEARCH_GAVE_UP if has_code else errors.UNDEFINED,
    )


def _read(query_string: str, version: Microversion, extensions: bool) -> CandidateQuery:
    """Parse the query of a request that passes the schema."""
    params = read_query(query_string)
    check_query(dict(params), EXTENDED if extensions else LIST, version)
    return parse(params, version, extensions=extensions)


# To look one up takes longer than to count.
_seconds: Final = cache(metrics.SEARCH_SECONDS.labels)

# Schedulers ask for the same few flavors again and again.
_cached_read: Final = lru_cache(maxsize=500)(_read)
# What a longer one parses to may be more than 30 KiB.
_REMEMBERED_LENGTH: Final = 2000
