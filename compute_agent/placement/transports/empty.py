"""A placement that has nothing, in memory: what a machine is compared with where there is none."""

from __future__ import annotations

from typing import Final

from compute_agent.placement.transports.transport import Request, Response, make_response

_VERSIONS: Final = (
    '{"versions": [{"id": "v1.0", "min_version": "1.0", "max_version": "1.39", '
    '"status": "CURRENT", "links": [{"rel": "self", "href": ""}]}]}'
)
_NOT_FOUND: Final = (
    '{"errors": [{"status": 404, "title": "Not Found", "detail": "There is nothing here."}]}'
)


class EmptyPlacement:
    """Answers reads as an empty placement does. It is not for writing."""

    def send(self, request: Request) -> Response:
        """Return the answer of an empty placement."""
        status, body = 404, _NOT_FOUND
        if request.path == "/":
            status, body = 200, _VERSIONS
        elif request.path.partition("?")[0] == "/resource_providers":
            status, body = 200, '{"resource_providers": []}'
        return make_response(status, [("Content-Type", "application/json")], body)
