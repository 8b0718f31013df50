"""Meaning of an answer of placement, as a typed error.

Placement explains itself in `{"errors": [{"status", "title", "detail", "code",
"request_id"}]}`.  A body that is not that comes from something in between (a proxy, a load
balancer, a login page): it is never taken for placement's opinion, so a proxy's 404 does not make
a provider vanish.
"""

from __future__ import annotations

import email.utils
import re
import time
from collections.abc import Mapping
from typing import Any, Final, TypeVar, cast

from msgspec import DecodeError, Struct

from compute_agent import errors
from compute_agent.bounded_http import json_document
from compute_agent.bounded_http.limits import LARGE, LimitExceeded, seconds_of
from compute_agent.placement.transports.transport import Request, Response, version_text
from compute_agent.programs import decoding

_TITLE: Final = r"<title>\s*([^<]+?)\s*</title>"
_SEARCHED: Final = 2000
"""Characters of a page in which its title is looked for."""

CONCURRENT_UPDATE: Final = "placement.concurrent_update"
INVENTORY_IN_USE: Final = "placement.inventory.inuse"
DUPLICATE_NAME: Final = "placement.duplicate_name"
CHANGES_PRUNED: Final = "placement.changes_pruned"

CONSUMER_CONFLICT_TEXT: Final = "consumer generation conflict"
"""A consumer's and a provider's generation share one code; only this text distinguishes them."""

SHOWN: Final = 500
"""Characters of a foreign body that go into a message."""

EXPLAINED: Final = 4000
"""Characters of an explanation that go into a message: all that placement ever has to say."""

_NO_PROVIDER: Final = r"resource provider '[^']+' that does not exist"

_NO_CAPACITY: Final = (
    r"(?:allocation for|Inventory for) '(?P<rc>[^']+)' on resource provider '(?P<rp>[^']+)'"
)

E = TypeVar("E", bound=errors.PlacementError)
T = TypeVar("T")


class Refusal(Struct, frozen=True):
    """Placement's own explanation of an answer with status 400 or above."""

    status: int
    detail: str
    code: str | None = None
    request_id: str | None = None
    min_version: str | None = None
    max_version: str | None = None


class _Refusals(Struct, frozen=True):
    errors: list[Refusal]


class NoCapacity(Struct, frozen=True):
    """There is not enough (any more), though there may be on other providers.

    Provider and class are empty where placement did not name them.
    """

    provider: str = ""
    resource_class: str = ""
    detail: str = ""


def refusal_of(response: Response) -> Refusal | None:
    """Placement's explanation, or None when the body is not one."""
    try:
        return decoding.decoder_of(_Refusals).decode(response.content).errors[0]
    except (ValueError, DecodeError, IndexError, RecursionError):
        # Not an explanation of placement's: said by the None, judged by the caller.
        return None


def explanation(response: Response) -> str:
    """Placement's detail without its fixed opening sentence, or the beginning of a foreign body.

    In one line; of a page of HTML, its title.
    """
    refusal = refusal_of(response)
    if refusal is None:
        title = re.search(_TITLE, response.text[:_SEARCHED], re.IGNORECASE)
        foreign = f"a page {title[1]!r}" if title else response.text
        return " ".join(foreign[:SHOWN].split()) or "an empty body"
    _, _, specific = (detail := refusal.detail[:EXPLAINED]).partition("\n\n")
    return " ".join((specific or detail).split())


def code_of(response: Response) -> str | None:
    refusal = refusal_of(response)
    return refusal.code if refusal is not None else None


def is_conflict(response: Response) -> bool:
    """Whether another writer was first (generation of a provider or a consumer)."""
    return response.status == 409 and code_of(response) == CONCURRENT_UPDATE


def is_consumer_conflict(response: Response) -> bool:
    return response.status == 409 and CONSUMER_CONFLICT_TEXT in explanation(response).lower()


def is_about_providers(error: errors.PlacementError) -> bool:
    """Whether a refused write of allocations was due to its providers and not to its consumers.

    Placement lost a race of its own every time, or a provider was deleted: nothing was written, and
    the same consumers may be given something of other providers.
    """
    if error.code == CONCURRENT_UPDATE:
        return CONSUMER_CONFLICT_TEXT not in error.detail.lower()
    return error.status == 400 and re.search(_NO_PROVIDER, error.detail) is not None


def failure(kind: type[E], request: Request, response: Response) -> E:
    """Make an error of type `kind` about an answer to this request."""
    refusal = refusal_of(response)
    request_id = (refusal.request_id if refusal else None) or response.request_id
    shown_id = f" [{request_id}]" if request_id else ""
    return kind(
        f"{request.doing} failed: placement answered {response.status} to {request}: "
        f"{explanation(response)}{shown_id}",
        status=response.status,
        code=refusal.code if refusal else None,
        detail=explanation(response),
        request_id=request_id,
        method=request.method,
        path=request.path,
        retry_after=retry_after(response),
    )


def raise_unless_answered(request: Request, response: Response) -> None:
    """Raise for answers that are the same trouble whatever was asked.

    :raises errors.PlacementUnavailable: 429 and every status from 500.
    :raises errors.PlacementUnauthorized: 401 and 403.
    :raises errors.PlacementTooOld: 406, the microversion is not offered.
    :raises errors.PlacementError: another status from 400 with a body that is not placement's.
    """
    status = response.status
    if status < 400:
        return
    if status == 429 or status >= 500:
        raise failure(errors.PlacementUnavailable, request, response)
    if status in (401, 403):
        raise failure(errors.PlacementUnauthorized, request, response)
    refusal = refusal_of(response)
    if status == 406 and refusal is not None and refusal.max_version is not None:
        raise errors.PlacementTooOld(
            f"{request.doing} needs microversion {version_text(request.microversion)}, placement "
            f"offers {refusal.min_version} to {refusal.max_version}: upgrade placement",
            status=status,
            method=request.method,
            path=request.path,
            request_id=refusal.request_id or response.request_id,
        )
    if refusal is None:
        raise failure(errors.PlacementError, request, response)


def refused(request: Request, response: Response) -> errors.PlacementError:
    """Make the error that the request names for an answer that is none of the good ones."""
    kind = request.refusals.get(response.status, request.error)
    if code := code_of(response):
        kind = request.refusals.get(code, kind)
    return failure(kind, request, response)


def shortage_in(
    kind: type[errors.PlacementError], request: Request, response: Response
) -> NoCapacity | None:
    """Return what a write was refused for want of, None if it was carried out."""
    if response.status == 204:
        return None
    conflict = is_conflict(response) or is_consumer_conflict(response)
    if response.status == 409 and not conflict:
        detail = explanation(response)
        match = re.search(_NO_CAPACITY, detail)
        return NoCapacity(match["rp"] if match else "", match["rc"] if match else "", detail)
    raise failure(kind, request, response)


def body_of(request: Request, response: Response, kind: type[T]) -> T:
    """Return the body of a good answer.

    :param kind: its type. Unknown keys are ignored unless it forbids them.
    :raises errors.PlacementError: the body does not fit it (a login page with status 200, a
        truncated body, an answer of another service ...); of the type that the request names.
    """
    try:
        if len(response.content) > LARGE:
            json_document.limit_containers(response.content)
        return decoding.decoder_of(kind).decode(response.content)
    except (ValueError, DecodeError, RecursionError, LimitExceeded) as error:
        # an error of msgspec is a ValueError from its version 0.21 on
        raise _misfit(request, response, kind, error) from error


def whole_body_of(request: Request, response: Response, kind: type[T]) -> T:
    """Return the body of a good answer with what its type, of dictionaries, lacks.

    :raises errors.PlacementError: as `body_of`.
    """
    body_of(request, response, kind)
    return cast(T, document_of(request, response))


def _misfit(
    request: Request, response: Response, kind: type[Any], error: Exception
) -> errors.PlacementError:
    """Make the error for a body that is not of a type, or breaks a limit."""
    try:
        document = document_of(request, response)
        # to find the place in a map, the body is decoded again and again
        if len(response.content) <= LARGE:
            decoding.convert(document, kind)
    except errors.PlacementAnswerRefused as refusal:
        return refusal
    except decoding.Misfit as misfit:
        error = misfit
    except ValueError as fault:
        return malformed(request, response, f"JSON ({fault})")
    return malformed(request, response, f"what was asked for ({error})")


def document_of(request: Request, response: Response) -> Any:
    """Return the body of an answer as it is.

    :raises ValueError: it is not JSON.
    :raises errors.PlacementAnswerRefused: it breaks a limit.
    """
    try:
        return json_document.parse(response.content)
    except LimitExceeded as violation:
        raise errors.PlacementAnswerRefused(
            f"{request} got no answer that can be used: it {violation}. Check what answers at this "
            "address.",
            method=request.method,
            path=request.path,
        ) from violation


def malformed(request: Request, response: Response, expectation: str) -> errors.PlacementError:
    """Make the error for an answer with a good status and no body, or another one.

    :param expectation: what it should have been.
    """
    return request.error(
        f"{request.doing} failed: {request} was answered {response.status} with something that is "
        f"not {expectation}: {response.text[:SHOWN]!r}. Check that this is the URL of placement.",
        status=response.status,
        detail=response.text[:SHOWN],
        request_id=response.request_id,
        method=request.method,
        path=request.path,
    )


def retry_after(response: Response) -> float | None:
    """Seconds the answer asks to wait: a number, or an HTTP date.  None when it asks nothing."""
    return seconds_of(response.headers.get("retry-after", ""))


def age_of(headers: Mapping[str, str]) -> float | None:
    """Return the seconds since what was read was last written; None: not reported.

    :param headers: of the answer, names in lower case.
    """
    written_at = _seconds(headers.get("last-modified"))
    if written_at is None:
        return None
    now = _seconds(headers.get("date"))
    return (time.time() if now is None else now) - written_at


def _seconds(date: str | None) -> float | None:
    if date is None:
        return None
    try:
        return email.utils.parsedate_to_datetime(date).timestamp()
    except ValueError:
        # no date is None, and nothing is concluded from an unknown age
        return None
