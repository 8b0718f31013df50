"""Handler of GET /agent_reports: when the agents of hosts reported last. An extension."""

from __future__ import annotations

from datetime import UTC, datetime

from placement_server import errors, limits
from placement_server.api.request import Request
from placement_server.api.response import Response, cache_headers, json_response
from placement_server.policies import operations
from placement_server.schemas import agent_reports as schemas
from placement_server.store import agent_reports


def list_(request: Request) -> Response:
    """List the last report of each agent, by the names of the hosts.

    Of `root` several may be given: of these hosts only. `notable` leaves out agents that report in
    time and have nothing to say.
    """
    request.require_json_accepted()
    request.authorise(operations.AGENT_REPORTS_LIST)
    params = request.query(schemas.QUERY)
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
                **report.document,
            }
            for report in reports
        ]
    }
    return json_response(body, *cache_headers(request.version))
