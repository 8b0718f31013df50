"""Handler of the one read that only the pages need: use, traits and aggregates of all hosts.

No route of the API has them for many hosts at once. It belongs to the pages, below their path: its
form may change with them, and nobody else should use it. The policy decides who may.
"""

from __future__ import annotations

from typing import Final

from placement_server import errors, limits
from placement_server.api.request import Request
from placement_server.api.response import Response, json_response
from placement_server.api.routes import Endpoint, Route
from placement_server.candidates.overview import overview
from placement_server.policies import operations
from placement_server.store.providers import provider_rows
from placement_server.web import use

NAME: Final = "fleet"


def show(request: Request) -> Response:
    """Show all hosts, or with `root` those of them that exist.

    Each list has one entry for each host. A class has `host`, the places in these lists of the
    hosts that have the class, where not all do.
    """
    roots = request.all_of("root")
    if len(roots) > limits.ROOTS:
        raise errors.BadRequest(limits.too_many("root", len(roots), "hosts", limits.ROOTS))
    body = overview(request.services.candidates.follower.index(), roots or None)
    names = request.store.read(provider_rows.names, body["uuids"])
    body["names"] = [names.get(uuid) for uuid in body["uuids"]]
    return json_response(body, ("cache-control", "no-store"))


def routes(web_path: str) -> dict[str, Route]:
    """Return the reads of the pages at their path, by their whole paths."""
    return {
        f"{web_path}/{NAME}": Route(
            "/{web_path}/fleet", {"GET": Endpoint(show, "AP", operations.WEB_FLEET)}
        ),
        f"{web_path}/{use.NAME}": Route(
            "/{web_path}/use", {"GET": Endpoint(use.show, "AP", operations.WEB_FLEET)}
        ),
    }
