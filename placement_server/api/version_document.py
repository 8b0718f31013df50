"""GET /: which versions there are. Needs no token."""

from placement_server import microversion
from placement_server.api.request import Request
from placement_server.api.response import Response, cache_headers, json_response


def show(request: Request) -> Response:
    """Show the versions."""
    version = {
        "id": f"v{microversion.MIN}",
        "max_version": str(microversion.MAX),
        "min_version": str(microversion.MIN),
        "status": "CURRENT",
        "links": [{"rel": "self", "href": ""}],
    }
    return json_response({"versions": [version]}, *cache_headers(request.version))
