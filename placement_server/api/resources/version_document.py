"""Handler of GET /, the list of versions. Needs no token."""

from typing import Any

from placement_server.api.request import Request
from placement_server.api.response import Response, cache_headers, json_response
from placement_server.negotiation import extensions, microversion


def show(request: Request) -> Response:
    """Show the versions."""
    version = {
        "id": f"v{microversion.MIN}",
        "max_version": str(microversion.MAX),
        "min_version": str(microversion.MIN),
        "status": "CURRENT",
        "links": [{"rel": "self", "href": ""}],
    }
    document: dict[str, Any] = {"versions": [version]}
    if request.extensions:
        document["extensions"] = [extensions.DOCUMENT]
    return json_response(document, *cache_headers(request.version))
