"""Handler of GET /allocation_candidates: every way to satisfy a request for resources."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final, TypeVar

from placement_server import errors, metrics
from placement_server.api.request import Request, check_query, read_query
from placement_server.api.response import Chunks, Response, cache_headers, encoded_response
from placement_server.candidates.errors import QueryError, SearchGaveUp
from placement_server.candidates.query import query
from placement_server.candidates.query.schema import SCHEMAS, schema_for
from placement_server.microversion import Microversion
from placement_server.policies import operations
from placement_server.schemas.validation import SchemaByVersion

_LIST: Final = SchemaByVersion({version[1]: schema for version, schema in SCHEMAS.items()})
_EXTENDED: Final = SchemaByVersion(
    {version[1]: schema_for(version, extensions=True) for version in SCHEMAS}
)


_Answer = TypeVar("_Answer")


def list_(request: Request) -> Response:
    """List the candidates."""
    answer = searched(request, request.services.candidates.answer, "answered")
    body = Chunks(answer.chunks, answer.account.close)
    return encoded_response(body, *cache_headers(request.version))


def searched(
    request: Request,
    search: Callable[[query.CandidateQuery, Microversion, Callable[[], None]], _Answer],
    result: str,
) -> _Answer:
    """Return the result of a search for the query of a request that passes all checks.

    :param result: the label under which a search that succeeds is counted.
    """
    request.require_version(10)
    request.require_json_accepted()
    request.authorise(operations.CANDIDATES_LIST)

    def on_turn(candidate_query: query.CandidateQuery, version: Microversion) -> _Answer:
        return search(candidate_query, version, request.give_turn_back)

    return result_of(request, request.query_string, on_turn, result)


def result_of(
    request: Request,
    query_string: str,
    search: Callable[[query.CandidateQuery, Microversion], _Answer],
    result: str,
) -> _Answer:
    """Return the result of a search for a query in the form of a query string.

    :param result: the label under which a search that succeeds is counted.
    """
    read = _remembered if len(query_string) <= _REMEMBERED_LENGTH else _read
    try:
        candidate_query = read(query_string, request.version, bool(request.extensions))
        with metrics.SEARCH_SECONDS.time():
            answer = search(candidate_query, request.version)
    except QueryError as error:
        metrics.SEARCHES.labels("refused").inc()
        raise errors.BadRequest(error.message, code=error.code or errors.UNDEFINED) from error
    except SearchGaveUp as error:
        raise gave_up(error) from error
    metrics.SEARCHES.labels(result).inc()
    return answer


def gave_up(error: SearchGaveUp) -> errors.ServiceUnavailable:
    """Return the 503 of a search that gave up, and count it."""
    metrics.SEARCHES.labels("gave_up").inc()
    return errors.ServiceUnavailable(str(error), retry_after=error.retry_after)


def _read(query_string: str, version: Microversion, extensions: bool) -> query.CandidateQuery:
    """Parse the query of a request that passes the schema."""
    params = read_query(query_string)
    check_query(dict(params), _EXTENDED if extensions else _LIST, version)
    return query.parse(params, version, extensions=extensions)


# Schedulers ask for the same few flavors again and again.
_remembered: Final = lru_cache(maxsize=500)(_read)
# What a longer one parses to may be more than 30 KiB.
_REMEMBERED_LENGTH: Final = 2000
