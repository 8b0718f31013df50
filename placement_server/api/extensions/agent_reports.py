"""Reports of agents: the header that brings one, and GET /agent_reports. An extension."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any, Final

from placement_server import errors, limits
from placement_server.api.request import Request, parse_json
from placement_server.api.response import Response, cache_headers, json_response
from placement_server.negotiation.microversion import MIN
from placement_server.policies import operations
from placement_server.schemas.validation import (
    COUNT,
    TEXT,
    TIME,
    UUID,
    InvalidInstance,
    SchemaByVersion,
    array_of,
    exact_object,
    optional,
    query_of,
)
from placement_server.store import agent_reports

HEADER: Final = "X-Compute-Agent-Report"
LONGEST: Final = 4096
"""Characters that a header may have."""

_SHORT: Final = {"type": "string", "maxLength": 500}
_OWN: Final[dict[str, Any]] = {
    "period": {"type": ["number", "null"], "minimum": 0, "maximum": 86400 * 366},
    "bus": optional(
        exact_object(
            state={"type": "string", "enum": ["off", "waiting", "up", "refused", "unreachable"]},
            since={"type": ["string", "null"], "format": "date-time"},
            why=_SHORT,
        ),
        "since",
        "why",
    ),
    "disabled_reason": _SHORT,
    "trouble": _SHORT,
    "place": exact_object(
        **dict.fromkeys(("address", "machine_id", "boot_id", "state_path"), _SHORT)
    ),
}
_CPU: Final = array_of(
    {"type": ["integer", "string", "null"], "maxLength": 36}, minItems=2, maxItems=2
)
_CELLS: Final = array_of(exact_object(id=COUNT, cores=array_of(array_of(_CPU))))

REPORT: Final = SchemaByVersion({0: optional(exact_object(**_OWN, cells=_CELLS), "cells")})

QUERY: Final = query_of(root=UUID, notable={"type": "string", "enum": ["true"]})

_REPORTED: Final = exact_object(
    root_provider_uuid=UUID,
    name=TEXT,
    at=TIME,
    silent={"type": "boolean"},
    **_OWN,
    cells=_CELLS,
)

REPORTS: Final = exact_object(agent_reports=array_of(optional(_REPORTED, "cells")))

LOG = logging.getLogger(__name__)

_KEY: Final = f"HTTP_{HEADER.upper().replace('-', '_')}"


def take(request: Request, root_uuid: str) -> None:
    """Take the report of an agent that a request brings, if its caller may send one."""
    text = request.environ.get(_KEY)
    if text is None:
        return
    try:
        request.authorise(operations.PROVIDERS_UPDATE)
        document = parse_json(text[:LONGEST].encode())
        REPORT.check(document, MIN)
    except (errors.ApiError, InvalidInstance) as error:
        LOG.debug("The report of the agent of %s is ignored: %s", root_uuid, error)
        return
    request.services.agent_reports.take(root_uuid, document)


def list_(request: Request) -> Response:
    """List the last report of each agent, by the names of the hosts.

    Of `root` several may be given: of these hosts only, with their cores. `notable` leaves out
    agents that report in time and have nothing to say.
    """
    params = request.query(QUERY)
    roots = request.all_of("root")
    if len(roots) > limits.ROOTS:
        raise errors.BadRequest(limits.too_many("root", len(roots), "hosts", limits.ROOTS))
    reports = request.store.read_single(
        agent_reports.read,
        datetime.now(UTC).replace(tzinfo=None),
        roots=[root.lower() for root in roots],
        only_notable="notable" in params,
    )
    body = {
        "agent_reports": [
            {
                "root_provider_uuid": report.root_uuid,
                "name": report.name,
                "at": report.at.strftime("%Y-%m-%dT%H:%M:%SZ"),
                "silent": report.is_silent,
                **{
                    name: value
                    for name, value in report.document.items()
                    if roots or name != "cells"
                },
            }
            for report in reports
        ]
    }
    return json_response(body, *cache_headers(request.version))
