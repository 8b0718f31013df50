"""Handler of POST /claims: claim the first of several candidates that fits.

An extension. A consumer is written as by PUT /allocations: all that it holds is replaced, and it
must have the generation that the body names, null when it must not exist yet.
"""

from __future__ import annotations

import logging
import uuid
from typing import Any

from placement_server import errors, metrics
from placement_server.api.request import Request
from placement_server.api.resources.allocations import (
    check_names,
    claim_conflict,
    consumer_write,
    counted_claim,
)
from placement_server.api.response import Response, json_response, no_cache_headers
from placement_server.policies import operations
from placement_server.schemas import allocation as schemas
from placement_server.store import errors as store_errors
from placement_server.store.allocations import alternatives

LOG = logging.getLogger(__name__)


def create(request: Request) -> Response:
    """Claim the first candidate that fits, in one transaction, and report those before it.

    At most 1,000 candidates, which together name at most 10,000 providers and resource classes. 409
    ``placement.no_candidate_left`` with all that were lost; ``placement.concurrent_update`` when
    the consumer has another generation, which is also the answer to a claim that is repeated.
    """
    request.require_version(38)
    request.require_json_content()
    request.authorise(operations.CLAIM)
    body = request.json(schemas.CLAIM)
    consumer_uuid = str(uuid.UUID(body["consumer_uuid"]))
    writes = [
        consumer_write(request, consumer_uuid, {**body, **candidate})
        for candidate in body["candidates"]
    ]
    check_names(writes)
    try:
        with counted_claim():
            outcome = request.store.write(alternatives.claim, writes)
    except store_errors.NoCandidateLeft as error:
        _count(error.lost_candidates)
        LOG.warning("Nothing was claimed: %s", error)
        raise errors.NoCandidateLeft(
            f"No candidate left: {error}",
            [_body_of_lost(lost_candidate) for lost_candidate in error.lost_candidates],
        ) from error
    except store_errors.Stale as error:
        raise claim_conflict(error) from error
    _count(outcome.lost_candidates)
    return json_response(
        {
            "chosen": outcome.position,
            "allocations": {
                provider: {"resources": amounts}
                for provider, amounts in writes[outcome.position].allocations.items()
            },
            "consumer_generation": outcome.generation,
            "lost": [_body_of_lost(lost_candidate) for lost_candidate in outcome.lost_candidates],
        },
        *no_cache_headers(request.version),
    )


def _count(lost_candidates: tuple[store_errors.LostCandidate, ...]) -> None:
    for lost_candidate in lost_candidates:
        cause = "short" if lost_candidate.reason is None else "unsuitable"
        metrics.CANDIDATES_LOST.labels(cause).inc()


def _body_of_lost(lost_candidate: store_errors.LostCandidate) -> dict[str, Any]:
    entry = {
        "candidate": lost_candidate.position,
        "provider": lost_candidate.provider,
        "resource_class": lost_candidate.resource_class,
        "asked": lost_candidate.requested_amount,
        "free": lost_candidate.free,
        "reason": lost_candidate.reason,
    }
    return {name: value for name, value in entry.items() if value is not None}
